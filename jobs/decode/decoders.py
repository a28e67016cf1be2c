"""Makes decoders for the formats of pipeline files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from jobs.decode.avro import Avro, RegisteredAvro
from jobs.decode.base import Decoder
from jobs.decode.connect_json import ConnectJson
from jobs.decode.foreign import foreign_decoder
from jobs.decode.json_fast import Json
from jobs.decode.json_strict import StrictJson
from jobs.decode.protobuf import Protobuf, RegisteredProtobuf
from jobs.decode.registered import RegisteredSchema
from jobs.decode.registered_json import RegisteredJson
from jobs.decode.text import Bytes, Text
from jobs.decode.unknown import Watch

Schemas = Mapping[int, RegisteredSchema]

_PLAIN: dict[str, Callable[[pa.DataType, Watch | None], Decoder]] = {
    "json": Json,
    "connect_json": ConnectJson,
    "string": lambda kind, _: Text(kind),
    "bytes": lambda kind, _: Bytes(kind),
}
_REGISTERED: dict[str, Callable[[pa.DataType, Schemas, bytes, Watch | None], Decoder]] = {
    "json": lambda kind, schemas, _, watch: RegisteredJson(kind, schemas, watch),
    "avro": lambda kind, schemas, schema, watch: RegisteredAvro(
        kind, schemas, schema.decode() if schema else None, watch
    ),
    "protobuf": lambda kind, schemas, _, watch: RegisteredProtobuf(kind, schemas, watch),
}


def decoder_for(
    format: str,
    type: pa.DataType,
    schema: bytes = b"",
    message: str = "",
    registered: Schemas | None = None,
    ignore_case: bool = False,
    watch: Watch | None = None,
    options: Mapping[str, str] | None = None,
) -> Decoder:
    """The decoder of a format for a declared type: a struct of the columns, or a scalar for a key of one value.

    Args:
        schema: an Avro schema's text or a Protobuf file descriptor set, for formats that need it.
        message: full name of the Protobuf message.
        registered: the schemas of the ids in records, which have Confluent's wire format; None: they do not.
        ignore_case: field names are compared without case; only in plain JSON.
        watch: what to do about fields without a column; None: ignore them.
        options: of a format that another package brings.

    Raises:
        ConfigurationError: a type that the format or the schema cannot carry, or a package that does not fit.
    """
    if ignore_case:
        return StrictJson(type, ignore_case=True, watch=watch)
    if registered is not None and format in _REGISTERED:
        return _REGISTERED[format](type, registered, schema, watch)
    if format == "avro":
        return Avro(type, schema.decode(), watch)
    if format == "protobuf":
        return Protobuf(type, schema, message, watch)
    return _PLAIN[format](type, watch) if format in _PLAIN else foreign_decoder(format, type, options or {}, watch)

"""Makes decoders for the formats of pipeline files."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from jobs.decode.avro import Avro, RegisteredAvro
from jobs.decode.base import Decoder
from jobs.decode.connect_json import ConnectJson
from jobs.decode.foreign import foreign_decoder
from jobs.decode.formed import Formed, has_forms
from jobs.decode.json_fast import Json
from jobs.decode.json_strict import StrictJson
from jobs.decode.protobuf import Protobuf, RegisteredProtobuf
from jobs.decode.registered import RegisteredSchema
from jobs.decode.registered_json import RegisteredJson
from jobs.decode.text import OneValue
from jobs.decode.unknown import Watch
from resources.stored_schema import SchemaId

Schemas = Mapping[SchemaId, RegisteredSchema]


def decoder_for(
    format: str,
    type: pa.DataType,
    schema: bytes = b"",
    message: str = "",
    registered: Schemas | None = None,
    ignore_case: bool = False,
    watch: Watch | None = None,
    options: Mapping[str, str] | None = None,
    one_value: bool = False,
) -> Decoder:
    """The decoder of a format for a declared type: a struct of the columns, or a scalar for a key of one value.

    Args:
        schema: an Avro schema's text or a Protobuf file descriptor set, for formats that need it.
        message: full name of the Protobuf message.
        registered: the schemas that records name, which have Confluent's wire format; None: they do not.
        ignore_case: field names are compared without case; only in plain JSON.
        watch: what to do about fields without a column; None: ignore them.
        options: of a format that another package brings.
        one_value: a JSON record that is no object is the value of the only column. (Records with a schema are read so
            in any case.)

    Raises:
        ConfigurationError: a type that the format or the schema cannot carry, or a package that does not fit.
    """
    found: Decoder
    match format, registered:
        case "json", Mapping() as schemas:
            found = RegisteredJson(type, schemas, watch, one_value)
        case "json", _:
            found = StrictJson(type, True, watch, one_value) if ignore_case else Json(type, watch, one_value)
        case "avro", Mapping() as schemas:
            found = RegisteredAvro(type, schemas, schema.decode() or None, watch)
        case "avro", _:
            found = Avro(type, schema.decode(), watch)
        case "protobuf", Mapping() as schemas:
            found = RegisteredProtobuf(type, schemas, watch)
        case "protobuf", _:
            found = Protobuf(type, schema, message, watch)
        case "connect_json", _:
            found = ConnectJson(type, watch)
        case "string" | "bytes", _:
            found = _formed(OneValue(type, format))
        case _:
            found = _formed(foreign_decoder(format, type, options or {}, watch))
    return found


def _formed(decoder: Decoder) -> Decoder:
    return Formed(decoder) if has_forms(decoder.type) else decoder

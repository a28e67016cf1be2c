"""Avro: records of a fixed schema without prefix, or in Confluent's wire format with the schemas of their ids.

Records are read by the schema with which they were written, without logical types: these are applied when values are
converted to the declared type, which also works for extreme values. Most records are read column by column (`columns`),
the others by fastavro. Spark's own `from_avro` is not used: it has one schema per column expression, fails whole tasks
or loses the reason why a record failed, and does not support the prefix.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import fastavro
import pyarrow as pa

from jobs.decode.avro_resolution import Change, Resolution, ResolvedType
from jobs.decode.base import Refused
from jobs.decode.columns.avro import avro_read
from jobs.decode.columns.convert import column_converter
from jobs.decode.columns.cursors import Cursors, NotInStep
from jobs.decode.columns.reading import InStep, by_schema_id, tombstones
from jobs.decode.convert import converter
from jobs.decode.of_schema import Marked, OneSchema, Reading, SchemaOfEach, only_column
from jobs.decode.parts import Part
from jobs.decode.registered import MessageIndex, RegisteredSchema, SchemaType, split
from jobs.decode.scalars import as_it_is
from jobs.decode.unknown import Watch
from jobs.schema.avro import avro_wire, plain
from jobs.schema.wire import Wire
from resources.errors import ConfigurationError
from resources.stored_schema import SchemaId


class Avro(OneSchema):
    """Records of one schema, without prefix."""

    format: ClassVar[str] = "Avro of the declared schema"

    def __init__(self, kind: pa.DataType, schema: str, watch: Watch | None = None) -> None:
        """Raises ConfigurationError if schema and columns are incompatible."""
        super().__init__(kind, watch)
        self._schema = schema
        self.check(remedy="declare the columns as the Avro schema has them")

    def __reduce__(self) -> tuple[type[Avro], tuple[Any, ...]]:
        return type(self), (self.type, self._schema, self._watch)

    def reading(self) -> Reading:
        return _reading((self._schema,), Marked(self._fields), None)


class RegisteredAvro(SchemaOfEach):
    """Records in Confluent's wire format, each written with the schema that it names.

    Values are matched to the columns by name; with `reader`, first resolved to that schema (`avro_resolution`).
    """

    format: ClassVar[str] = "Avro of its schema id"
    of: ClassVar[SchemaType] = "AVRO"

    def __init__(
        self,
        kind: pa.DataType,
        schemas: Mapping[SchemaId, RegisteredSchema],
        reader: str | None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(kind, schemas, watch)
        self._reader = reader

    def __reduce__(self) -> tuple[type[RegisteredAvro], tuple[Any, ...]]:
        return type(self), (self.type, self._schemas, self._reader, self._watch)

    def reading(self, schema: RegisteredSchema, message: MessageIndex) -> Reading:
        del message  # an Avro schema has only one
        return _reading(schema.texts, Marked(self._fields), self._reader)

    def message_at(self, record: bytes, at: int) -> tuple[MessageIndex, int]:
        del record  # an Avro schema has only one
        return (), at

    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        found = [tombstones(raw, self.type)]
        for prefix, rows in by_schema_id(raw):
            found += self.in_bulk(self.known_reading(split(prefix)[0], ()), raw, rows, len(prefix))
        return found


@lru_cache(256)
def _reading(texts: tuple[str, ...], marked: Marked, reader: str | None) -> Reading:
    """Made once per worker process; raises Unrepresentable."""
    kind = marked.kind
    written, named = avro_wire(texts), dict[str, Any]()
    # Its own defaults do not matter for reading a record, and old versions of Avro let wrong ones pass.
    writer = parsed(texts, named, defaults=False)
    wire, change = (written, None) if reader is None else _resolved(written, named, reader)
    wrapped = only_column(wire, kind)
    if wrapped is not None:
        wire, written = (Wire("record", fields=((wrapped, one),)) for one in (wire, written))
    convert = converter(wire, kind)
    columns = None if change else _in_step(writer, named, written, kind, wrapped)
    return Reading(wire, _parse(writer, change or as_it_is, wrapped), convert, columns)


def _resolved(written: Wire, named: Mapping[str, Any], reader: str) -> ResolvedType:
    read, definitions = avro_wire((reader,)), dict[str, Any]()
    parsed((reader,), definitions, defaults=True)
    return Resolution(named, definitions).of(written, read)


def _parse(writer: Any, change: Change, wrapped: str | None) -> Callable[[bytes, int], Any]:
    def parse(record: bytes, start: int) -> Any:
        stream = io.BytesIO(record)
        stream.seek(start)
        # Values of a union with several named types come with the type's name, which alone distinguishes them.
        value = fastavro.schemaless_reader(
            stream, writer, None, return_named_type=True, return_named_type_override=True
        )
        if stream.tell() != len(record):
            raise Refused("undecodable", "bytes are left over after the Avro record")
        value = None if value is None else change(value)
        return value if wrapped is None else {wrapped: value}

    return parse


def _in_step(
    writer: Any, named: Mapping[str, Any], wire: Wire, kind: pa.DataType, wrapped: str | None
) -> InStep | None:
    convert = column_converter(wire, kind)
    try:
        read = avro_read(writer, named)
    except NotInStep:
        return None

    def wrap(cursors: Cursors) -> pa.Array:
        return pa.StructArray.from_arrays([read(cursors)], names=[wrapped])

    return None if convert is None else InStep(wrap if wrapped is not None else read, convert)


def parsed(texts: Sequence[str], named: dict[str, Any], defaults: bool) -> Any:
    """The last schema in fastavro's parsed form, after those that it refers to; adds all named types to `named`.

    Args:
        defaults: as in `plain`.

    Raises:
        ConfigurationError: fastavro does not accept it.
    """
    found: Any = "null"
    try:
        for text in texts:
            found = fastavro.parse_schema(plain(json.loads(text), defaults), named_schemas=named)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, ValueError) as problem:
        raise ConfigurationError(f"not an Avro schema: {problem}", remedy="correct the schema") from None
    return found

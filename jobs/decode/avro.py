"""Avro: records of a fixed schema without prefix, or in Confluent's wire format with the schemas of their ids.

Records are read by the schema that they were written with, without logical types: those are applied on the way to the
declared type, which takes extreme values too. Most are read in step (`columns`), the others by fastavro. Spark's own
`from_avro` knows one schema per column expression, fails whole tasks or forgets why a record failed, and knows no
prefix: so it is not used.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import fastavro
import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.columns.avro import avro_read
from jobs.decode.columns.convert import column_converter
from jobs.decode.columns.cursors import Cursors, NotInStep
from jobs.decode.columns.reading import InStep, by_prefix, others, tombstones
from jobs.decode.convert import Unrepresentable, converter
from jobs.decode.parts import Part
from jobs.decode.registered import PREFIX_BYTES, RegisteredSchema, other_type, split, unknown
from jobs.decode.rows import RowDecoder
from jobs.decode.scalars import Convert
from jobs.decode.undeclared import undeclared
from jobs.decode.unknown import Watch
from jobs.schema.avro import avro_wire, plain
from jobs.schema.found_fields import FoundFields
from jobs.schema.wire import Wire
from resources.errors import ConfigurationError


class Avro(RowDecoder):
    """Records of one schema, without prefix."""

    format: ClassVar[str] = "Avro of the declared schema"

    def __init__(self, kind: pa.DataType, schema: str, watch: Watch | None = None) -> None:
        """Raises ConfigurationError where schema and columns do not go together."""
        super().__init__(kind, watch)
        self._schema = schema
        try:
            _reading((schema,), self._fields, None)
        except Unrepresentable as problem:
            raise ConfigurationError(str(problem), remedy="declare the columns as the Avro schema has them") from None

    def __reduce__(self) -> tuple[type[Avro], tuple[Any, ...]]:
        return type(self), (self._type, self._schema, self._watch)

    @cached_property
    def _read(self) -> tuple[Reading, FoundFields]:
        reading = _reading((self._schema,), self._fields, None)
        return reading, undeclared(reading.wire, self._fields, self._watch)

    def value(self, record: bytes) -> Any:
        reading, unknown = self._read
        parsed = reading.parsed(record, 0)
        return self.watched(parsed, reading.converted, unknown, reading.wire)

    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        empty = tombstones(raw, self._type)
        return [empty, *self.in_step(*self._read, raw, others(raw, empty), 0)]


class RegisteredAvro(RowDecoder):
    """Records in Confluent's wire format, each written with the schema of its id.

    Values are matched to the columns by name; with `reader`, first resolved to that schema by Avro's rules (aliases,
    defaults, promotion).
    """

    format: ClassVar[str] = "Avro of its schema id"

    def __init__(
        self,
        kind: pa.DataType,
        schemas: Mapping[int, RegisteredSchema],
        reader: str | None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(kind, watch)
        self._schemas, self._reader = dict(schemas), reader

    def __reduce__(self) -> tuple[type[RegisteredAvro], tuple[Any, ...]]:
        return type(self), (self._type, self._schemas, self._reader, self._watch)

    @cached_property
    def _readings(self) -> dict[int, tuple[Reading, FoundFields] | Refused]:
        return {}

    def value(self, record: bytes) -> Any:
        reading = self._of(split(record)[0])
        if isinstance(reading, Refused):
            raise reading
        parsed = reading[0].parsed(record, PREFIX_BYTES)
        return self.watched(parsed, reading[0].converted, reading[1], reading[0].wire)

    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        found = [tombstones(raw, self._type)]
        for prefix, rows in by_prefix(raw, PREFIX_BYTES):
            reading = self._of(split(prefix)[0]) if prefix[0] == 0 else None
            if isinstance(reading, tuple):
                found += self.in_step(*reading, raw, rows, PREFIX_BYTES)
        return found

    def _of(self, schema_id: int) -> tuple[Reading, FoundFields] | Refused:
        if schema_id not in self._readings:
            self._readings[schema_id] = self._prepared(schema_id)
        return self._readings[schema_id]

    def _prepared(self, schema_id: int) -> tuple[Reading, FoundFields] | Refused:
        schema = self._schemas.get(schema_id)
        if schema is None:
            return unknown(schema_id)
        if schema.type != "AVRO":
            return other_type(schema_id, "AVRO", schema.type)
        try:
            reading = _reading(schema.texts, self._fields, self._reader)
            return reading, undeclared(reading.wire, self._fields, self._watch)
        except (Unrepresentable, ConfigurationError) as problem:
            return Refused("schema", f"schema id {schema_id}: {problem}")


class Reading:
    """How records of one writer's schema become values of one type.

    Attributes:
        wire: what their schema says.
        columns: how many of them are read in step; None: they cannot be.
    """

    def __init__(
        self,
        writer: Any,
        reader: Any,
        wire: Wire,
        convert: Convert | None,
        wrapped: str | None,
        columns: InStep | None,
    ) -> None:
        self._writer, self._reader, self._convert, self._wrapped = writer, reader, convert, wrapped
        self.wire, self.columns = wire, columns

    def parsed(self, record: bytes, start: int) -> Any:
        stream = io.BytesIO(record)
        stream.seek(start)
        # Of a union with several named types the name comes with the value: it alone distinguishes them.
        value = fastavro.schemaless_reader(
            stream, self._writer, self._reader, return_named_type=True, return_named_type_override=True
        )
        if stream.tell() != len(record):
            raise Refused("undecodable", "bytes are left over after the Avro record")
        return value if self._wrapped is None else {self._wrapped: value}

    def converted(self, value: Any) -> Any:
        return value if self._convert is None or value is None else self._convert(value)


@lru_cache(256)
def _reading(texts: tuple[str, ...], kind: pa.DataType, reader: str | None) -> Reading:
    """Made once per worker process; raises Unrepresentable."""
    wire = avro_wire((reader,) if reader else texts)
    wrapped = None
    one_value = wire.kind != "record" and pa.types.is_struct(kind) and kind.num_fields == 1
    if one_value and not (wire.kind == "union" and wire.field(kind.field(0).name)):
        # A key that is one value, as the only column; not the column of one branch of a union.
        wrapped = kind.field(0).name
        wire = Wire("record", fields=((wrapped, wire),))
    convert = converter(wire, kind)
    named: dict[str, Any] = {}
    writer = parsed(texts, named)
    if reader is None:
        return Reading(writer, None, wire, convert, wrapped, _in_step(writer, named, wire, kind, wrapped))
    return Reading(writer, parsed((reader,), {}), wire, convert, wrapped, None)


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


def parsed(texts: Sequence[str], named: dict[str, Any]) -> Any:
    """The last schema as fastavro wants it, after those that it refers to; `named` gets all that have a name.

    Raises:
        ConfigurationError: fastavro does not accept it.
    """
    found: Any = "null"
    try:
        for text in texts:
            found = fastavro.parse_schema(plain(json.loads(text)), named_schemas=named)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, ValueError) as problem:
        raise ConfigurationError(f"not an Avro schema: {problem}", remedy="correct the schema") from None
    return found

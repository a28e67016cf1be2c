"""Avro: records of a fixed schema without prefix, or in Confluent's wire format with the schemas of their ids.

fastavro reads a record by the schema that it was written with, without logical types: those are applied on the way to
the declared type, which takes extreme values too. Spark's own `from_avro` knows one schema per column expression, fails
whole tasks or forgets why a record failed, and knows no prefix: so it is not used.
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
from jobs.decode.convert import Unrepresentable, converter
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
        return self.watched(parsed, reading.converted, unknown)


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
        schema_id, _ = split(record)
        reading = self._readings.get(schema_id)
        if reading is None:
            reading = self._readings[schema_id] = self._prepared(schema_id)
        if isinstance(reading, Refused):
            raise reading
        parsed = reading[0].parsed(record, PREFIX_BYTES)
        return self.watched(parsed, reading[0].converted, reading[1])

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
    """

    def __init__(self, writer: Any, reader: Any, wire: Wire, convert: Convert | None, wrapped: str | None) -> None:
        self._writer, self._reader, self._convert, self._wrapped = writer, reader, convert, wrapped
        self.wire = wire

    def parsed(self, record: bytes, start: int) -> Any:
        stream = io.BytesIO(record)
        stream.seek(start)
        # Of a union with several named types the name comes with the value: it alone tells them apart.
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
    if pa.types.is_struct(kind) and wire.kind != "record" and kind.num_fields == 1:
        # A key that is one value, as the only column.
        wrapped = kind.field(0).name
        wire = Wire("record", fields=((wrapped, wire),))
    convert = converter(wire, kind)
    return Reading(parsed(texts), parsed((reader,)) if reader else None, wire, convert, wrapped)


def parsed(texts: Sequence[str]) -> Any:
    """The last schema as fastavro wants it, after those that it refers to.

    Raises:
        ConfigurationError: fastavro does not accept it.
    """
    named: dict[str, Any] = {}
    found: Any = "null"
    try:
        for text in texts:
            found = fastavro.parse_schema(plain(json.loads(text)), named_schemas=named)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, ValueError) as problem:
        raise ConfigurationError(f"not an Avro schema: {problem}", remedy="mend the schema") from None
    return found

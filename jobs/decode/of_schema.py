"""Decoders of records with a schema: one for all records, or the schema of each record's id."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.columns.reading import InStep, others, tombstones
from jobs.decode.convert import Unrepresentable
from jobs.decode.parts import Part, Rows
from jobs.decode.registered import RegisteredSchema, SchemaType, known, split
from jobs.decode.rows import RowDecoder
from jobs.decode.scalars import Convert
from jobs.decode.undeclared import undeclared
from jobs.decode.unknown import Watch
from jobs.schema.found_fields import NOTHING_FOUND, FoundFields
from jobs.schema.wire import Wire
from resources.errors import ConfigurationError


@dataclass(frozen=True)
class Reading:
    """How records of one schema become values of one type.

    Attributes:
        wire: the schema.
        parse: parses a record that begins at this offset; raises Refused.
        convert: converts the parsed value to what Arrow accepts; None: no conversion is needed.
        columns: reads many records column by column; None: not possible for this schema.
        undeclared: fields of the schema that have no column.
    """

    wire: Wire
    parse: Callable[[bytes, int], Any]
    convert: Convert | None
    columns: InStep | None
    undeclared: FoundFields = NOTHING_FOUND


@dataclass(frozen=True, eq=False)
class Marked:
    """A type as a key of caches: Arrow's own equality ignores marks on fields (`text`, `jobs.decode.json_dialect`)."""

    kind: pa.DataType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marked) and bool(self.kind.equals(other.kind, check_metadata=True))

    def __hash__(self) -> int:
        return hash(self.kind)


class SchemaDecoder(RowDecoder):
    """Reads records by their schemas."""

    def _complete(self, reading: Reading) -> Reading:
        return replace(reading, undeclared=undeclared(reading.wire, self._fields, self._watch))

    def _one(self, record: bytes, start: int, reading: Reading) -> Any:
        parsed = reading.parse(record, start)
        return self.watched(parsed, reading.convert, reading.undeclared, reading.wire)

    def in_step(self, reading: Reading, raw: pa.Array, rows: Rows, start: int) -> list[Part]:
        """Those of these rows that can be read column by column, from `start` on; none if undeclared fields matter."""
        looked_at = bool(reading.undeclared) and self._rest is not None
        if reading.columns is None or looked_at:
            return []
        return [reading.columns.part(raw, rows, start, reading.undeclared)]


class OneSchema(SchemaDecoder):
    """Records of one schema, without prefix."""

    @abstractmethod
    def reading(self) -> Reading:
        """How records are read; raises Unrepresentable if schema and columns are incompatible."""

    def check(self, remedy: str) -> None:
        """Raises ConfigurationError if schema and columns are incompatible."""
        try:
            self.reading()
        except Unrepresentable as problem:
            raise ConfigurationError(str(problem), remedy=remedy) from None

    @cached_property
    def _reading(self) -> Reading:
        return self._complete(self.reading())

    def value(self, record: bytes) -> Any:
        return self._one(record, 0, self._reading)

    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        empty = tombstones(raw, self.type)
        return [empty, *self.in_step(self._reading, raw, others(raw, empty), 0)]


class SchemaOfEach(SchemaDecoder):
    """Records in Confluent's wire format, each with the schema of its id.

    Attributes:
        of: the type of these schemas.
    """

    of: ClassVar[SchemaType]

    def __init__(self, kind: pa.DataType, schemas: Mapping[int, RegisteredSchema], watch: Watch | None = None) -> None:
        super().__init__(kind, watch)
        self._schemas = dict(schemas)
        self._readings: dict[tuple[int, tuple[int, ...]], Reading | Refused] = {}

    @abstractmethod
    def reading(self, schema: RegisteredSchema, message: tuple[int, ...]) -> Reading:
        """How these records are read; raises Refused, Unrepresentable, ConfigurationError if they cannot be read."""

    @abstractmethod
    def prefix(self, record: bytes) -> tuple[tuple[int, ...], int]:
        """The message indexes of a record with a schema id, and the offset where the message begins; raises Refused."""

    def value(self, record: bytes) -> Any:
        schema_id, _ = split(record)
        message, start = self.prefix(record)
        reading = self.known_reading(schema_id, message)
        if isinstance(reading, Refused):
            raise reading
        return self._one(record, start, reading)

    def known_reading(self, schema_id: int, message: tuple[int, ...]) -> Reading | Refused:
        if (schema_id, message) not in self._readings:
            self._readings[schema_id, message] = self._prepared(schema_id, message)
        return self._readings[schema_id, message]

    def _prepared(self, schema_id: int, message: tuple[int, ...]) -> Reading | Refused:
        try:
            return self._complete(self.reading(known(self._schemas, schema_id, self.of), message))
        except Refused as refused:
            return refused
        except (Unrepresentable, ConfigurationError) as problem:
            return Refused("schema", f"schema id {schema_id}: {problem}")

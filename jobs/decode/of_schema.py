"""Decoders of records with a schema: one for all records, the schema of each record's id, or the one in each record.

They read as many records as possible together, and parse the others one by one, so that each record fails on its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from jobs.decode.base import Decoded, DecodeError, Refused, decode_each
from jobs.decode.columns.reading import others, tombstones
from jobs.decode.convert import Unrepresentable
from jobs.decode.meant import Meaning, meaning_of
from jobs.decode.parts import SMALL, Part, Rows, joined, judged, pieces
from jobs.decode.registered import MessageIndex, RegisteredSchema, SchemaType, called, known, split
from jobs.decode.scalars import Convert
from jobs.decode.undeclared import undeclared, undeclared_part
from jobs.decode.unknown import Finding, Watch
from jobs.schema.found_fields import NOTHING_FOUND, FoundFields
from jobs.schema.wire import Wire
from jobs.schema.with_fields import with_fields
from resources.errors import ConfigurationError
from resources.stored_schema import SchemaId

_ARROW = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError, OverflowError)


class Bulk(Protocol):
    """Reads many records of one schema together."""

    def parts(self, raw: pa.Array, rows: Rows, start: int, undeclared: FoundFields) -> list[Part]:
        """Those of these rows that can be read.

        Args:
            start: the offset in each record where its value begins.
            undeclared: fields of the schema that have no column.
        """


@dataclass(frozen=True, eq=False)
class Reading:
    """How records of one schema become values of one type.

    Attributes:
        wire: the schema.
        parse: parses a record whose value begins at this offset; raises Refused.
        convert: converts the parsed value to what Arrow accepts; None: no conversion is needed.
        bulk: reads many records together; None: not possible for this schema.
        undeclared: fields of the schema that have no column.
        meaning: converts these fields by their schema's meaning (`jobs.decode.meant`); None: no conversion is needed.
    """

    wire: Wire
    parse: Callable[[bytes, int], Any]
    convert: Convert | None
    bulk: Bulk | None = None
    undeclared: FoundFields = NOTHING_FOUND
    meaning: Meaning | None = None


@dataclass(frozen=True, eq=False)
class Marked:
    """A type as a key of caches: Arrow's own equality ignores marks on fields (`text`, `jobs.decode.json_dialect`)."""

    kind: pa.DataType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marked) and bool(self.kind.equals(other.kind, check_metadata=True))

    def __hash__(self) -> int:
        return hash(self.kind)


def only_column(wire: Wire, kind: pa.DataType) -> str | None:
    """The name of the only column if records are a single value, as keys may be, which becomes that column."""
    if wire.kind == "record" or not pa.types.is_struct(kind) or kind.num_fields != 1:
        return None
    name: str = kind.field(0).name
    # Not the column of one branch of a union.
    return None if wire.kind == "union" and wire.field(name) else name


class SchemaDecoder(ABC):
    """Reads records by their schemas.

    Attributes:
        format: its name, for messages.
    """

    format: ClassVar[str]

    def __init__(self, kind: pa.DataType, watch: Watch | None = None) -> None:
        """Args:
        watch: what to do about fields of a record's schema that have no column.
        """
        self.type, self._watch = kind, watch
        # The columns that are filled from fields of records.
        self._fields = watch.without_column(kind) if watch else kind
        self._rest = watch.rest(kind) if watch and watch.then != "report" else None
        self._reported = Counter[Reading]()

    @abstractmethod
    def value(self, record: bytes) -> Any:
        """A value that `pa.array` accepts for the type. Raises Refused; other exceptions mean: not of this format."""

    @abstractmethod
    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        """Those of the records (binary) that can be read together, with the same values as one by one."""

    def decode(self, raw: pa.Array) -> Decoded:
        return joined(judged(piece, self._parts(piece), self.decode_each) for piece in pieces(raw))

    def decode_each(self, raw: pa.Array) -> Decoded:
        self._reported.clear()
        values, errors = decode_each(raw, self._value)
        unknown = sum((one.undeclared.times(records) for one, records in self._reported.items()), NOTHING_FOUND)
        return Decoded(self._array(values, errors), errors, unknown=unknown)

    def complete(self, reading: Reading) -> Reading:
        """The reading with what is to be done about fields without a column."""
        found, meaning = undeclared(reading.wire, self._fields, self._watch), None
        if found and self._rest and self._watch:
            meaning = meaning_of(undeclared_part(reading.wire, self._fields, self._watch))
        return replace(reading, undeclared=found, meaning=meaning)

    def watched(self, parsed: Any, reading: Reading) -> Any:
        """The converted value of a record, after handling its fields without a column; raises Refused.

        Fields are reported also if the columns cannot hold the record: wider columns might.
        """
        looks = bool(reading.undeclared) and parsed is not None
        if looks and self._rest is None:
            self._reported[reading] += 1
        value = parsed if reading.convert is None or parsed is None else reading.convert(parsed)
        if not looks or self._rest is None or self._watch is None:
            return value
        rest = self._rest(_meant(parsed, reading.meaning))
        return value if rest is None else self._watch.apply(rest, value, Finding())

    def in_bulk(self, reading: Reading | Refused, raw: pa.Array, rows: Rows, start: int) -> list[Part]:
        """Those of these rows that can be read together, from `start` on; none if undeclared fields matter."""
        if isinstance(reading, Refused) or reading.bulk is None or (reading.undeclared and self._rest is not None):
            return []
        return reading.bulk.parts(raw, rows, start, reading.undeclared)

    def _parts(self, raw: pa.Array) -> list[Part]:
        try:
            found = self.bulk_parts(raw) if len(raw) > SMALL else []
        except Exception:  # decoded one by one, a record does not affect others
            return []
        return [replace(part, values=with_fields(part.values, self.type)) for part in found]

    def _value(self, record: bytes) -> Any:
        try:
            return self.value(record)
        except Refused:
            raise
        except Exception as problem:  # parsers may raise anything on broken bytes, with values in the message
            raise Refused("undecodable", f"the record is not {self.format}: {type(problem).__name__}") from None

    def _array(self, values: Sequence[Any], errors: dict[int, DecodeError]) -> pa.Array:
        try:
            return pa.array(values, type=self.type)
        except _ARROW:
            return pa.concat_arrays([self._single(index, value, errors) for index, value in enumerate(values)])

    def _single(self, index: int, value: Any, errors: dict[int, DecodeError]) -> pa.Array:
        try:
            return pa.array([value], type=self.type)
        except _ARROW as problem:
            text = f"a value cannot be stored as declared: {type(problem).__name__}"
            errors[index] = DecodeError("type", text)
            return pa.nulls(1, self.type)


def _meant(parsed: Any, meaning: Meaning | None) -> Any:
    try:
        return parsed if meaning is None else meaning(parsed)
    except Refused:
        return parsed


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
        return self.complete(self.reading())

    def value(self, record: bytes) -> Any:
        return self.watched(self._reading.parse(record, 0), self._reading)

    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        empty = tombstones(raw, self.type)
        return [empty, *self.in_bulk(self._reading, raw, others(raw, empty), 0)]


class SchemaOfEach(SchemaDecoder):
    """Records in Confluent's wire format, each with the schema that it names.

    Attributes:
        of: the type of these schemas.
    """

    of: ClassVar[SchemaType]

    def __init__(
        self, kind: pa.DataType, schemas: Mapping[SchemaId, RegisteredSchema], watch: Watch | None = None
    ) -> None:
        super().__init__(kind, watch)
        self._schemas = dict(schemas)
        self._readings: dict[tuple[SchemaId, MessageIndex], Reading | Refused] = {}

    @abstractmethod
    def reading(self, schema: RegisteredSchema, message: MessageIndex) -> Reading:
        """How these records are read; raises Refused, Unrepresentable, ConfigurationError if they cannot be read."""

    @abstractmethod
    def message_at(self, record: bytes, at: int) -> tuple[MessageIndex, int]:
        """The message that the bytes there name, and where it begins; raises Refused."""

    def value(self, record: bytes) -> Any:
        schema_id, at = split(record)
        message, start = self.message_at(record, at)
        reading = self.known_reading(schema_id, message)
        if isinstance(reading, Refused):
            raise reading
        return self.watched(reading.parse(record, start), reading)

    def known_reading(self, schema_id: SchemaId, message: MessageIndex) -> Reading | Refused:
        if (schema_id, message) not in self._readings:
            self._readings[schema_id, message] = self._prepared(schema_id, message)
        return self._readings[schema_id, message]

    def _prepared(self, schema_id: SchemaId, message: MessageIndex) -> Reading | Refused:
        try:
            return self.complete(self.reading(known(self._schemas, schema_id, self.of), message))
        except Refused as refused:
            return refused
        except (Unrepresentable, ConfigurationError) as problem:
            return Refused("schema", f"{called(schema_id)}: {problem}")

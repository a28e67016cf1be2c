"""Protobuf: records of a message in a descriptor file, or in Confluent's wire format with message indexes.

Most are read in step (`columns`), the others by Google's library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError as ProtobufError

from jobs.decode.base import Refused
from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.convert import column_converter
from jobs.decode.columns.cursors import NotInStep
from jobs.decode.columns.protobuf import protobuf_read, read_wire
from jobs.decode.columns.reading import InStep, by_prefix, others, tombstones
from jobs.decode.convert import Unrepresentable, converter
from jobs.decode.parts import Part
from jobs.decode.registered import PREFIX_BYTES, RegisteredSchema, other_type, split, unknown
from jobs.decode.rows import RowDecoder
from jobs.decode.scalars import Convert
from jobs.decode.undeclared import undeclared
from jobs.decode.unknown import Watch
from jobs.schema.found_fields import FoundFields
from jobs.schema.protobuf import TIMESTAMP, WRAPPERS, Messages, message_class, message_wire
from jobs.schema.wire import Wire
from resources.errors import ConfigurationError

Get = Callable[[Any], Any]


class Protobuf(RowDecoder):
    """Records of one message, without prefix."""

    format: ClassVar[str] = "a Protobuf message of the declared type"

    def __init__(self, kind: pa.DataType, descriptors: bytes, message: str, watch: Watch | None = None) -> None:
        """Raises ConfigurationError where message and columns do not go together."""
        super().__init__(kind, watch)
        self._descriptors, self._message = descriptors, message
        try:
            self._read  # noqa: B018
        except Unrepresentable as problem:
            raise ConfigurationError(str(problem), remedy="declare the columns as the message has them") from None

    def __reduce__(self) -> tuple[type[Protobuf], tuple[Any, ...]]:
        return type(self), (self._type, self._descriptors, self._message, self._watch)

    @cached_property
    def _read(self) -> tuple[Reading, FoundFields]:
        reading = _reading(self._descriptors, self._message, self._fields, self._rest is not None)
        return reading, undeclared(reading.wire, self._fields, self._watch)

    def value(self, record: bytes) -> Any:
        reading, unknown = self._read
        parsed = reading.parsed(record)
        return self.watched(parsed, reading.converted, unknown, reading.wire)

    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        empty = tombstones(raw, self._type)
        return [empty, *self.in_step(*self._read, raw, others(raw, empty), 0)]


class RegisteredProtobuf(RowDecoder):
    """Records in Confluent's wire format: each of the message that its schema id and message indexes name."""

    format: ClassVar[str] = "a Protobuf message of its schema id"

    def __init__(self, kind: pa.DataType, schemas: Mapping[int, RegisteredSchema], watch: Watch | None = None) -> None:
        super().__init__(kind, watch)
        self._schemas = dict(schemas)

    def __reduce__(self) -> tuple[type[RegisteredProtobuf], tuple[Any, ...]]:
        return type(self), (self._type, self._schemas, self._watch)

    @cached_property
    def _readings(self) -> dict[tuple[int, tuple[int, ...]], tuple[Reading, FoundFields] | Refused]:
        return {}

    def value(self, record: bytes) -> Any:
        schema_id, rest = split(record)
        indexes, start = message_indexes(rest)
        reading = self._of(schema_id, indexes)
        if isinstance(reading, Refused):
            raise reading
        parsed = reading[0].parsed(rest[start:])
        return self.watched(parsed, reading[0].converted, reading[1], reading[0].wire)

    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        found = [tombstones(raw, self._type)]
        for first, rows in by_prefix(raw, PREFIX_BYTES + 1):
            # The first number says how many indexes there are: most records have the same.
            example = _indexes(raw[int(rows[0])].as_py()) if first[0] == 0 else None
            for prefix, own in by_prefix(raw.take(arrow(rows)), example[1]) if example else ():
                named = _indexes(prefix)
                reading = self._of(split(prefix)[0], named[0]) if named and named[1] == len(prefix) else None
                if isinstance(reading, tuple):
                    found += self.in_step(*reading, raw, rows[own], len(prefix))
        return found

    def _of(self, schema_id: int, indexes: tuple[int, ...]) -> tuple[Reading, FoundFields] | Refused:
        if (schema_id, indexes) not in self._readings:
            self._readings[schema_id, indexes] = self._prepared(schema_id, indexes)
        return self._readings[schema_id, indexes]

    def _prepared(self, schema_id: int, indexes: tuple[int, ...]) -> tuple[Reading, FoundFields] | Refused:
        schema = self._schemas.get(schema_id)
        if schema is None:
            return unknown(schema_id)
        if schema.type != "PROTOBUF":
            return other_type(schema_id, "PROTOBUF", schema.type)
        if schema.problem:
            return Refused("schema", f"schema id {schema_id}: {schema.problem}")
        try:
            found = _reading(schema.descriptors, indexes, self._fields, self._rest is not None)
            return found, undeclared(found.wire, self._fields, self._watch)
        except (KeyError, IndexError):
            return Refused("schema", f"schema id {schema_id} has no message at the indexes of the record")
        except (Unrepresentable, ConfigurationError) as problem:
            return Refused("schema", f"schema id {schema_id}: {problem}")


def message_indexes(rest: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes between schema id and message, and where the message begins.

    A number of indexes, then the indexes, all as zigzag variable-length integers; a single zero stands for [0].
    """
    count, at = _zigzag(rest, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= 32:
        raise Refused("undecodable", "the record has no message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(rest, at)
        indexes.append(index)
    return tuple(indexes), at


def _indexes(record: bytes) -> tuple[tuple[int, ...], int] | None:
    """The indexes after a record's prefix, and where its message begins."""
    try:
        indexes, size = message_indexes(record[PREFIX_BYTES:])
    except Refused:
        return None
    return indexes, PREFIX_BYTES + size


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 35:
            raise Refused("undecodable", "the record has no message indexes")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


class Reading:
    """How messages of one type become values of one Arrow type.

    Attributes:
        wire: what the message says.
        columns: how many of them are read in step; None: they cannot be.
    """

    def __init__(self, message: Any, wire: Wire, extract: Get, convert: Convert | None, columns: InStep | None) -> None:
        self._parse, self._extract, self._convert = message.FromString, extract, convert
        self.wire, self.columns = wire, columns

    def parsed(self, record: bytes) -> Any:
        try:
            return self._extract(self._parse(record))
        except ProtobufError:
            raise Refused("undecodable", "the record is no Protobuf message") from None

    def converted(self, value: Any) -> Any:
        return value if self._convert is None else self._convert(value)


@lru_cache(256)
def _reading(descriptors: bytes, message: str | tuple[int, ...], kind: pa.DataType, whole: bool) -> Reading:
    """Made once per worker process; raises Unrepresentable, or KeyError for indexes without a message.

    Args:
        whole: also the fields that no column takes are wanted.
    """
    messages = Messages(descriptors)
    found = messages.named(message) if isinstance(message, str) else messages.at(message)
    wanted = set(kind.names) if pa.types.is_struct(kind) else set()
    wire = message_wire(found)
    extract = _record(found, None if whole else wanted)
    return Reading(message_class(found), wire, extract, converter(wire, kind), _in_step(found, wire, kind))


def _in_step(message: Descriptor, wire: Wire, kind: pa.DataType) -> InStep | None:
    convert = column_converter(read_wire(wire), kind)
    try:
        return None if convert is None else InStep(protobuf_read(message), convert)
    except NotInStep:
        return None


def _record(message: Descriptor, wanted: set[str] | None = None) -> Get:
    """A function from a message to the dict of its (wanted) fields."""
    plain, others = [], []
    for field in message.fields:
        if wanted is not None and field.name not in wanted:
            continue
        if field.message_type is None and field.enum_type is None and not field.is_repeated and not field.has_presence:
            plain.append(field.name)
        else:
            others.append((field.name, _field(field)))

    def extract(value: Any) -> dict[str, Any]:
        found = {name: getattr(value, name) for name in plain}
        for name, get in others:
            found[name] = get(value)
        return found

    return extract


def _field(field: FieldDescriptor) -> Get:
    name = field.name
    if field.is_repeated:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            item = _item(entry.fields_by_name["value"])
            return lambda value: [(key, item(inner)) for key, inner in getattr(value, name).items()]
        item = _item(field)
        return lambda value: [item(inner) for inner in getattr(value, name)]
    item = _item(field)
    if field.has_presence:
        return lambda value: item(getattr(value, name)) if value.HasField(name) else None
    return lambda value: item(getattr(value, name))


def _item(field: FieldDescriptor) -> Get:
    if field.enum_type is not None:
        names = {number: found.name for number, found in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    message = field.message_type
    if message is None:
        return lambda value: value
    if message.full_name == TIMESTAMP:
        return lambda value: value.seconds * 1_000_000_000 + value.nanos
    if message.full_name in WRAPPERS:
        return lambda value: value.value
    # Made when first needed: a message may hold itself.
    made: list[Get] = []

    def extract(value: Any) -> Any:
        if not made:
            made.append(_record(message))
        return made[0](value)

    return extract

"""Protobuf: records of a message in a descriptor file, or in Confluent's wire format with message indexes.

Most are read column by column (`columns`), the others by Google's library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError as ProtobufError

from jobs.decode.base import Refused
from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.convert import column_converter
from jobs.decode.columns.cursors import NotInStep
from jobs.decode.columns.protobuf import protobuf_read, read_wire
from jobs.decode.columns.reading import InStep, by_prefix, by_schema_id, tombstones
from jobs.decode.convert import converter
from jobs.decode.of_schema import Marked, OneSchema, Reading, SchemaOfEach
from jobs.decode.parts import Part
from jobs.decode.registered import MessageIndex, RegisteredSchema, SchemaType, called, message_index, split
from jobs.decode.unknown import Watch, json_text
from jobs.schema.protobuf import JSON, TIMESTAMP, WRAPPERS, Messages, message_class, message_wire
from jobs.schema.wire import Wire

Get = Callable[[Any], Any]


class Protobuf(OneSchema):
    """Records of one message, without prefix."""

    format: ClassVar[str] = "a Protobuf message of the declared type"

    def __init__(self, kind: pa.DataType, descriptors: bytes, message: str, watch: Watch | None = None) -> None:
        """Raises ConfigurationError if message and columns are incompatible."""
        super().__init__(kind, watch)
        self._descriptors, self._message = descriptors, message
        self.check(remedy="declare the columns as the message has them")

    def __reduce__(self) -> tuple[type[Protobuf], tuple[Any, ...]]:
        return type(self), (self.type, self._descriptors, self._message, self._watch)

    def reading(self) -> Reading:
        return _reading(self._descriptors, self._message, Marked(self._fields), self._rest is not None)


class RegisteredProtobuf(SchemaOfEach):
    """Records in Confluent's wire format; schema id and message indexes name the message of each."""

    format: ClassVar[str] = "a Protobuf message of its schema id"
    of: ClassVar[SchemaType] = "PROTOBUF"

    def __reduce__(self) -> tuple[type[RegisteredProtobuf], tuple[Any, ...]]:
        return type(self), (self.type, self._schemas, self._watch)

    def reading(self, schema: RegisteredSchema, message: MessageIndex) -> Reading:
        if schema.problem:
            raise Refused("schema", f"{called(schema.id)}: {schema.problem}")
        try:
            return _reading(schema.descriptors, message, Marked(self._fields), self._rest is not None)
        except (KeyError, IndexError):
            raise Refused("schema", f"{called(schema.id)} has no message at the indexes of the record") from None

    def message_at(self, record: bytes, at: int) -> tuple[MessageIndex, int]:
        return message_index(record, at)

    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        found = [tombstones(raw, self.type)]
        # The first number after the id is the number of indexes; most records have the same indexes.
        for first, rows in by_schema_id(raw, beyond=1):
            schema_id, at = split(first)
            example = self._indexes(raw[int(rows[0])].as_py(), at)
            for prefix, own in by_prefix(raw.take(arrow(rows)), example[1]) if example else ():
                named = self._indexes(prefix, at)
                if named and named[1] == len(prefix):
                    found += self.in_bulk(self.known_reading(schema_id, named[0]), raw, rows[own], len(prefix))
        return found

    def _indexes(self, record: bytes, at: int) -> tuple[MessageIndex, int] | None:
        try:
            return self.message_at(record, at)
        except Refused:
            return None


@lru_cache(256)
def _reading(descriptors: bytes, message: str | MessageIndex, marked: Marked, whole: bool) -> Reading:
    """Made once per worker process; raises Unrepresentable, or KeyError for indexes without a message.

    Args:
        whole: also read fields that have no column.
    """
    messages, kind = Messages(descriptors), marked.kind
    found = messages.named(message) if isinstance(message, str) else messages.at(message)
    wanted = set(kind.names) if pa.types.is_struct(kind) else set()
    wire = message_wire(found)
    extract = _record(found, None if whole else wanted)
    return Reading(wire, _parse(message_class(found), extract), converter(wire, kind), _in_step(found, wire, kind))


def _parse(message: Any, extract: Get) -> Callable[[bytes, int], Any]:
    def parse(record: bytes, start: int) -> Any:
        try:
            return extract(message.FromString(record[start:]))
        except ProtobufError:
            raise Refused("undecodable", "the record is no Protobuf message") from None

    return parse


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
    if message.full_name in JSON:
        return lambda value: json_text(_plain(value))
    if message.full_name in WRAPPERS:
        return lambda value: value.value
    # Made when first needed, since a message may contain itself.
    made: list[Get] = []

    def extract(value: Any) -> Any:
        if not made:
            made.append(_record(message))
        return made[0](value)

    return extract


def _plain(value: Any) -> Any:
    """The value of a `google.protobuf.Struct`, `Value` or `ListValue`; whole numbers without a fraction."""
    match value.DESCRIPTOR.name:
        case "Struct":
            return {name: _plain(inner) for name, inner in value.fields.items()}
        case "ListValue":
            return [_plain(inner) for inner in value.values]
    kind = value.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    found = getattr(value, kind)
    if kind == "number_value":
        return int(found) if found.is_integer() and abs(found) < 2**53 else found
    return _plain(found) if kind in ("struct_value", "list_value") else found

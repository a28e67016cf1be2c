"""Reads Protobuf messages column by column: fields in the order of their numbers, as writers write them, or in another.

It gives up messages in which a field, or fields of a oneof, occur more than once, those with an unnamed enum value, and
those with a group that their type lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.assembly import Lists, Read, maps, spread, structs
from jobs.decode.columns.cursors import Cursors, Ints, Mask, NotInStep, Words
from jobs.decode.columns.scalars import INSTANT
from jobs.schema.protobuf import JSON, TIMESTAMP, WRAPPERS
from jobs.schema.wire import Wire

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_ROUNDS = 8  # passes over the fields, if they come in another order
_LAST_SECOND = 2**42


def protobuf_read(message: Descriptor) -> Read:
    """A reader of messages as structs of all fields, by the types of `read_wire`.

    Raises:
        NotInStep: a message contains itself, or a group, or is JSON.
    """
    return _message(message, ())


def read_wire(wire: Wire) -> Wire:
    """The wire type in which `protobuf_read` reads instants."""
    if wire.kind == "long" and wire.logical == "timestamp-ns":
        return replace(wire, kind=INSTANT, logical="timestamp-us")
    fields = tuple((name, read_wire(inner)) for name, inner in wire.fields)
    return replace(wire, fields=fields, items=tuple(read_wire(inner) for inner in wire.items))


def _message(message: Descriptor, inside: tuple[str, ...]) -> Read:
    if message.full_name in inside or message.full_name in JSON:
        raise NotInStep(message.full_name)
    fields = [_Field(field, (*inside, message.full_name)) for field in sorted(message.fields, key=lambda f: f.number)]
    known = np.array([field.number for field in fields], np.uint64)
    is_entry = bool(message.GetOptions().map_entry)

    def read(cursors: Cursors) -> pa.Array:
        found = [field.start(len(cursors)) for field in fields]
        tags = _tags(cursors)
        for _ in range(_ROUNDS):
            for values in found:
                values.take(cursors, tags)
            if not is_entry:  # in an entry of a map they are the key and the value
                _skip(cursors, tags, known)
            if not tags.any():
                break
        cursors.refuse(tags != 0)
        oneofs: dict[str, Mask] = {}
        columns = [values.column(cursors, oneofs) for values in found]
        named = [pa.field(field.name, column.type) for field, column in zip(fields, columns, strict=True)]
        return structs(columns, named, None, len(cursors))

    return read


def _tags(cursors: Cursors) -> Words:
    """Reads the next tag (a field's number and wire type) of each message; 0 at its end."""
    rows = np.flatnonzero(cursors.at < cursors.end)
    tags = np.zeros(len(cursors), np.uint64)
    tags[rows] = cursors.read(rows, _tag)
    return tags


def _tag(cursors: Cursors) -> Words:
    before = cursors.at.copy()
    found = cursors.varint()
    cursors.refuse((found < 8) | (found >= 2**32) | (cursors.at - before > 5))
    return np.where(cursors.good, found, np.uint64(0))


def _skip(cursors: Cursors, tags: Words, known: Words) -> None:
    """Skips fields that the message type does not have."""
    while True:
        rows = np.flatnonzero((tags != 0) & ~np.isin(tags >> np.uint64(3), known))
        if not len(rows):
            return
        own = cursors.of(rows)
        kind = tags[rows] & np.uint64(7)
        for written, skip in _SKIPS.items():
            own.read(np.flatnonzero(kind == written), skip)
        own.refuse(~np.isin(kind, list(_SKIPS)))
        tags[rows] = _tags(own)
        cursors.put(rows, own)


_SKIPS: Mapping[int, Callable[[Cursors], object]] = {
    _VARINT: lambda cursors: cursors.varint(),
    _EIGHT: lambda cursors: cursors.advance(8),
    _BYTES: lambda cursors: cursors.passed(cursors.varint()),
    _FOUR: lambda cursors: cursors.advance(4),
}


class _Field:
    """How one field is read.

    Attributes:
        tags: the tags with which it may begin, the packed one last.
        needed: messages without it are given up.
        filling: its value if it is absent; None: null.
    """

    def __init__(self, field: FieldDescriptor, inside: tuple[str, ...]) -> None:
        written, self.read, default = _single(field, inside)
        self.name, self.number, self.repeated = field.name, field.number, bool(field.is_repeated)
        self.oneof = field.containing_oneof.name if field.containing_oneof is not None else field.name
        entry = field.message_type
        self.is_map = bool(self.repeated and entry is not None and entry.GetOptions().map_entry)
        in_map = field.containing_type.GetOptions().map_entry
        self.filling = default if in_map or not field.has_presence else None
        self.needed = bool(field.is_required or (in_map and entry is not None))
        packed = [_BYTES] if self.repeated and written != _BYTES else []
        self.tags = [np.uint64(field.number << 3 | kind) for kind in (written, *packed)]

    def start(self, messages: int) -> _Repeated | _Singular:
        return _Repeated(self, messages) if self.repeated else _Singular(self, messages)


class _Singular:
    """The values of a field that a message has at most once."""

    def __init__(self, field: _Field, messages: int) -> None:
        self._field, self._seen = field, np.zeros(messages, np.bool_)
        self._rows: list[Ints] = []
        self._values: list[pa.Array] = []

    def take(self, cursors: Cursors, tags: Words) -> None:
        rows = np.flatnonzero(tags == self._field.tags[0])
        if not len(rows) and self._rows:
            return

        def read(own: Cursors) -> Words:
            self._values.append(self._field.read(own))
            own.refuse(self._seen[rows])
            return _tags(own)

        tags[rows] = cursors.read(rows, read)
        self._rows.append(rows)
        self._seen[rows] = True

    def column(self, cursors: Cursors, oneofs: dict[str, Mask]) -> pa.Array:
        field, others = self._field, oneofs.get(self._field.oneof)
        if others is not None:
            cursors.refuse(others & self._seen)
        oneofs[field.oneof] = self._seen if others is None else others | self._seen
        if field.needed:
            cursors.refuse(~self._seen)
        values, rows = self._values[0], self._rows[0]
        if len(self._rows) > 1:
            values, rows = pa.concat_arrays(self._values), np.concatenate(self._rows)
        if len(self._rows) > 1 or len(rows) < len(cursors):
            values = spread(values, rows, len(cursors))
        return values if field.filling is None or not values.null_count else values.fill_null(field.filling)


class _Repeated:
    """The values of a field that a message has any number of times."""

    def __init__(self, field: _Field, messages: int) -> None:
        self._field, self._lists = field, Lists(messages)

    def take(self, cursors: Cursors, tags: Words) -> None:
        for tag, read in zip(self._field.tags, (self._one, self._packed), strict=False):
            while len(rows := np.flatnonzero(tags == tag)):
                if not self._lists.goes_on(cursors, rows):
                    tags[rows] = 0
                    break
                own = cursors.of(rows)
                read(own, rows)
                tags[rows] = _tags(own)
                cursors.put(rows, own)

    def _one(self, cursors: Cursors, rows: Ints) -> None:
        self._lists.add(rows, self._field.read(cursors))

    def _packed(self, cursors: Cursors, rows: Ints) -> None:
        part = cursors.part(cursors.varint())
        while True:
            some = np.flatnonzero(part.at < part.end)
            if not self._lists.goes_on(part, some):
                break
            own = part.of(some)
            self._one(own, rows[some])
            part.put(some, own)
        cursors.join(part)

    def column(self, cursors: Cursors, _oneofs: dict[str, Mask]) -> pa.Array:
        offsets, items = self._lists.concatenated(self._field.read(cursors.of(np.zeros(0, np.int64))))
        return maps(cursors, offsets, items) if self._field.is_map else pa.ListArray.from_arrays(offsets, items)


def _single(field: FieldDescriptor, inside: tuple[str, ...]) -> tuple[int, Read, pa.Scalar | None]:
    """A field's wire type, the reader of one value, and the value if it is absent."""
    message = field.message_type
    if field.type == FieldDescriptor.TYPE_ENUM:
        first = None if field.is_repeated else pa.scalar(field.enum_type.values_by_number[field.default_value].name)
        return _VARINT, _enum(field), first
    if message is None:
        written, read_scalar = _SCALARS[field.type]
        empty = {FieldDescriptor.CPPTYPE_STRING: b"" if field.type == FieldDescriptor.TYPE_BYTES else ""}
        return written, read_scalar, pa.scalar(empty.get(field.cpp_type, 0)).cast(_DEFAULTS[field.type])
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        raise NotInStep("a group")
    read_all = _message(message, inside)

    def read(cursors: Cursors) -> pa.Array:
        part = cursors.part(cursors.varint())
        values = read_all(part)
        if message.full_name == TIMESTAMP:
            values = _instant(part, values)
        elif message.full_name in WRAPPERS:
            (values,) = values.flatten()
        cursors.join(part)
        return values

    return _BYTES, read, None


def _instant(cursors: Cursors, values: pa.Array) -> pa.Array:
    seconds, nanos = (values.field(name).to_numpy() for name in ("seconds", "nanos"))
    cursors.refuse((seconds > _LAST_SECOND) | (seconds < -_LAST_SECOND))
    return arrow(seconds * 1_000_000 + nanos.astype(np.int64) // 1000)


def _enum(field: FieldDescriptor) -> Read:
    numbers = np.array(sorted(field.enum_type.values_by_number), np.int64)
    names = pa.array([field.enum_type.values_by_number[int(number)].name for number in numbers])

    def read(cursors: Cursors) -> pa.Array:
        found = cursors.varint().astype(np.uint32).view(np.int32).astype(np.int64)
        places = np.searchsorted(numbers, found).clip(max=len(numbers) - 1)
        cursors.refuse(numbers[places] != found)
        return names.take(arrow(places))

    return read


def _low(cursors: Cursors) -> npt.NDArray[Any]:
    return cursors.varint().astype(np.uint32)


def _zigzag_low(cursors: Cursors) -> npt.NDArray[Any]:
    low, one = _low(cursors), np.uint32(1)
    return ((low >> one) ^ (~(low & one) + one)).view(np.int32)


_F = FieldDescriptor
_SCALARS: Mapping[int, tuple[int, Read]] = {
    _F.TYPE_BOOL: (_VARINT, lambda c: arrow(c.varint() != 0)),
    _F.TYPE_INT32: (_VARINT, lambda c: arrow(_low(c).view(np.int32))),
    _F.TYPE_SINT32: (_VARINT, lambda c: arrow(_zigzag_low(c))),
    _F.TYPE_SFIXED32: (_FOUR, lambda c: arrow(c.four().view(np.int32))),
    _F.TYPE_UINT32: (_VARINT, lambda c: arrow(_low(c).astype(np.int64))),
    _F.TYPE_FIXED32: (_FOUR, lambda c: arrow(c.four().astype(np.int64))),
    _F.TYPE_INT64: (_VARINT, lambda c: arrow(c.varint().view(np.int64))),
    _F.TYPE_SINT64: (_VARINT, lambda c: arrow(c.zigzag())),
    _F.TYPE_SFIXED64: (_EIGHT, lambda c: arrow(c.eight().view(np.int64))),
    _F.TYPE_UINT64: (_VARINT, lambda c: arrow(c.varint())),
    _F.TYPE_FIXED64: (_EIGHT, lambda c: arrow(c.eight())),
    _F.TYPE_FLOAT: (_FOUR, lambda c: arrow(c.four().view(np.float32))),
    _F.TYPE_DOUBLE: (_EIGHT, lambda c: arrow(c.eight().view(np.float64))),
    _F.TYPE_STRING: (_BYTES, lambda c: c.string(c.varint())),
    _F.TYPE_BYTES: (_BYTES, lambda c: c.binary(c.varint())),
}
_EMPTY = Cursors(np.zeros(16, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
_DEFAULTS = {kind: read(_EMPTY).type for kind, (_, read) in _SCALARS.items()}

"""The footer of a Parquet file as values by Thrift's field ids, so that another footer can be put together of it.

pyarrow shows what a footer says, but writes only those of rows that it has written itself. The field ids are those of
parquet-format's `parquet.thrift`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

MAGIC = b"PAR1"
# The length of the footer and the magic bytes, at the end of a file.
END = 8


class File(IntEnum):
    VERSION, SCHEMA, ROWS, GROUPS, CREATED_BY = 1, 2, 3, 4, 6


class Element(IntEnum):
    REPETITION, NAME, CHILDREN, FIELD_ID = 3, 4, 5, 9


class Group(IntEnum):
    COLUMNS, BYTES, ROWS, OFFSET, COMPRESSED = 1, 2, 3, 5, 6


class Chunk(IntEnum):
    FILE_OFFSET, METADATA = 2, 3


class Column(IntEnum):
    PATH, BYTES, COMPRESSED, PAGES, INDEX, DICTIONARY, STATISTICS, BLOOM, BLOOM_BYTES = 3, 6, 7, 9, 10, 11, 12, 14, 15


class Statistic(IntEnum):
    NULLS, MOST, LEAST = 3, 5, 6


_REQUIRED = 0


class Value(NamedTuple):
    """A value with its Thrift type: a scalar, bytes, the fields of a struct, or the `Elements` of a list."""

    kind: int
    value: Any


class Elements(NamedTuple):
    kind: int
    values: list[Any]


Fields = Mapping[int, Value]


def parsed(footer: bytes) -> Fields:
    """A footer, without its length and the magic bytes."""
    return _fields(TCompactProtocol(TMemoryBuffer(footer)))


def written(fields: Fields) -> bytes:
    """The end of a Parquet file: the footer, its length and the magic bytes."""
    buffer = TMemoryBuffer()
    _write_fields(TCompactProtocol(buffer), fields)
    footer: bytes = buffer.getvalue()
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def listed(fields: Fields, name: int) -> Sequence[Fields]:
    """The structs of a list."""
    return fields[name].value.values if name in fields else ()


def scalar(fields: Fields, name: int, otherwise: Any = None) -> Any:
    return fields[name].value if name in fields else otherwise


def with_values(fields: Fields, values: Mapping[int, Any]) -> Fields:
    """With other values of fields that it has; lists as sequences. None: without the field."""
    changed = {n: Value(fields[n].kind, _like(fields[n], value)) for n, value in values.items() if value is not None}
    return {name: changed.get(name, value) for name, value in fields.items() if values.get(name, value) is not None}


def only(fields: Fields, names: Iterable[int]) -> Fields:
    """Without other fields."""
    wanted = {*names}
    return {name: value for name, value in fields.items() if name in wanted}


def _like(before: Value, value: Any) -> Any:
    return Elements(before.value.kind, list(value)) if before.kind == TType.LIST else value


@dataclass(frozen=True)
class Node:
    """A column of a schema, or a field of one.

    Attributes:
        leaves: the numbers of the Parquet columns in it.
    """

    element: Fields
    children: Sequence[Node]
    leaves: range

    @property
    def name(self) -> str:
        found: bytes = scalar(self.element, Element.NAME)
        return found.decode()

    @property
    def is_required(self) -> bool:
        return bool(scalar(self.element, Element.REPETITION) == _REQUIRED)

    def child(self, name: str) -> Node | None:
        return next((child for child in self.children if child.name == name), None)

    @property
    def form(self) -> tuple[object, ...]:
        """How its values are stored: nodes of one form hold the same pages. Its own name and field ids do not count."""
        ids = (Element.NAME, Element.FIELD_ID)
        own = tuple((name, value) for name, value in sorted(self.element.items()) if name not in ids)
        return own, tuple((child.name, child.form) for child in self.children)


def schema(footer: Fields) -> Node:
    """The root of the schema, which a footer has as a list in depth-first order."""
    return _node(iter(listed(footer, File.SCHEMA)), 0)


def _node(elements: Iterator[Fields], first: int) -> Node:
    element = next(elements)
    count = scalar(element, Element.CHILDREN, 0)
    children, end = list[Node](), first if count else first + 1
    for _ in range(count):
        children.append(_node(elements, end))
        end = children[-1].leaves.stop
    return Node(element, children, range(first, end))


_SCALARS = {
    TType.BYTE: ("readByte", "writeByte"),
    TType.I16: ("readI16", "writeI16"),
    TType.I32: ("readI32", "writeI32"),
    TType.I64: ("readI64", "writeI64"),
    TType.BOOL: ("readBool", "writeBool"),
    TType.DOUBLE: ("readDouble", "writeDouble"),
    TType.STRING: ("readBinary", "writeBinary"),
}


def _fields(protocol: TCompactProtocol) -> Fields:
    found = dict[int, Value]()
    protocol.readStructBegin()
    while True:
        _, kind, name = protocol.readFieldBegin()
        if kind == TType.STOP:
            break
        found[name] = Value(kind, _read(protocol, kind))
        protocol.readFieldEnd()
    protocol.readStructEnd()
    return found


def _read(protocol: TCompactProtocol, kind: int) -> Any:
    if kind == TType.STRUCT:
        return _fields(protocol)
    if kind == TType.LIST:
        inner, count = protocol.readListBegin()
        values = [_read(protocol, inner) for _ in range(count)]
        protocol.readListEnd()
        return Elements(inner, values)
    return getattr(protocol, _SCALARS[kind][0])()


def _write_fields(protocol: TCompactProtocol, fields: Fields) -> None:
    protocol.writeStructBegin(None)
    for name, value in fields.items():
        protocol.writeFieldBegin(None, value.kind, name)
        _write(protocol, value.kind, value.value)
        protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()


def _write(protocol: TCompactProtocol, kind: int, value: Any) -> None:
    if kind == TType.STRUCT:
        _write_fields(protocol, value)
    elif kind == TType.LIST:
        protocol.writeListBegin(value.kind, len(value.values))
        for element in value.values:
            _write(protocol, value.kind, element)
        protocol.writeListEnd()
    else:
        getattr(protocol, _SCALARS[kind][1])(value)

"""Reads Avro records column by column, by the schema with which they were written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.assembly import Lists, Read, maps, structs, where
from jobs.decode.columns.cursors import Cursors, Ints, NotInStep


def avro_read(schema: Any, named: Mapping[str, Any]) -> Read:
    """A reader of a schema's values in plain types: no logical types, an enum as text, a union as a struct.

    Args:
        schema: as fastavro has parsed it, without logical types.
        named: the schemas that it names, by their full names.

    Raises:
        NotInStep: a record contains itself.
    """
    return _Reader(named).read(schema)


class _Reader:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._schemas, self._inside = named, list[str]()

    def read(self, schema: Any) -> Read:
        if isinstance(schema, list | str):
            return self._union(schema) if isinstance(schema, list) else self._named(schema)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind in ("array", "map"):
            return _array(self.read(schema["items"])) if kind == "array" else _map(self.read(schema["values"]))
        if kind in ("enum", "fixed"):
            return _enum(schema["symbols"]) if kind == "enum" else _fixed(schema["size"])
        return self.read(kind)

    def _named(self, name: str) -> Read:
        if name in self._inside:
            raise NotInStep(name)
        return _PRIMITIVES[name] if name in _PRIMITIVES else self.read(self._schemas[name])

    def _record(self, schema: Mapping[str, Any]) -> Read:
        self._inside.append(schema["name"])
        fields = [(field["name"], self.read(field["type"])) for field in schema["fields"]]
        self._inside.pop()

        def read(cursors: Cursors) -> pa.Array:
            columns = [read_field(cursors) for _, read_field in fields]
            named = [pa.field(name, column.type) for (name, _), column in zip(fields, columns, strict=True)]
            return structs(columns, named, None, len(cursors))

        return read

    def _union(self, branches: Sequence[Any]) -> Read:
        """Reads the only branch that is not null, or a struct with one field per branch (`f"{number}"`)."""
        null = branches.index("null") if "null" in branches else -1
        reads = [(number, self.read(branch)) for number, branch in enumerate(branches) if number != null]

        def read(cursors: Cursors) -> pa.Array:
            chosen = cursors.zigzag()
            cursors.refuse((chosen < 0) | (chosen >= len(branches)))
            parts = [where(cursors, chosen == number, read_branch) for number, read_branch in reads]
            if len(parts) == 1:
                return parts[0]
            absent = arrow(chosen == null)
            return pa.StructArray.from_arrays(parts, names=[str(n) for n in range(len(parts))], mask=absent)

        return read if reads else lambda cursors: _null(cursors, cursors.zigzag())


def _null(cursors: Cursors, chosen: Ints) -> pa.Array:
    cursors.refuse(chosen != 0)
    return pa.nulls(len(cursors))


def _boolean(cursors: Cursors) -> pa.Array:
    byte = cursors.words() & np.uint64(0xFF)
    cursors.refuse(byte > 1)
    cursors.advance(cursors.good.astype(np.int64))
    return arrow(byte == 1)


def _int(cursors: Cursors) -> pa.Array:
    value = cursors.zigzag()
    cursors.refuse(value != value.astype(np.int32))
    return arrow(value.astype(np.int32))


def _lengths(cursors: Cursors) -> Any:
    # A negative length becomes a large one, which is then given up.
    return cursors.zigzag().view(np.uint64)


_PRIMITIVES: Mapping[str, Read] = {
    "null": lambda cursors: pa.nulls(len(cursors)),
    "boolean": _boolean,
    "int": _int,
    "long": lambda cursors: arrow(cursors.zigzag()),
    "float": lambda cursors: arrow(cursors.four().view(np.float32)),
    "double": lambda cursors: arrow(cursors.eight().view(np.float64)),
    "bytes": lambda cursors: cursors.binary(_lengths(cursors)),
    "string": lambda cursors: cursors.string(_lengths(cursors)),
}


def _enum(symbols: Sequence[str]) -> Read:
    names = pa.array(symbols, pa.string())

    def read(cursors: Cursors) -> pa.Array:
        value = cursors.zigzag()
        bad = (value < 0) | (value >= len(symbols))
        cursors.refuse(bad)
        return names.take(arrow(value, bad))

    return read


def _fixed(size: int) -> Read:
    return lambda cursors: cursors.binary(size)


def _array(item: Read) -> Read:
    def read(cursors: Cursors) -> pa.Array:
        return pa.ListArray.from_arrays(*_blocks(cursors, item))

    return read


def _map(value: Read) -> Read:
    def entry(cursors: Cursors) -> pa.Array:
        keys = cursors.string(_lengths(cursors))
        return pa.StructArray.from_arrays([keys, value(cursors)], names=["key", "value"])

    def read(cursors: Cursors) -> pa.Array:
        return maps(cursors, *_blocks(cursors, entry))

    return read


def _blocks(cursors: Cursors, item: Callable[[Cursors], pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Offsets and items of blocks, each with its number of items first (negative: a byte size follows); 0 is last."""
    lists = Lists(len(cursors))
    left, open_ = np.zeros(len(cursors), np.int64), np.ones(len(cursors), np.bool_)
    while True:
        rows = np.flatnonzero(open_ & (left == 0) & cursors.good)
        if len(rows):
            left[rows] = cursors.read(rows, _block_sizes)
            open_[rows] = left[rows] != 0
        rows = np.flatnonzero((left > 0) & cursors.good)
        if not lists.goes_on(cursors, rows):
            return lists.concatenated(item(cursors.of(rows[:0])))
        lists.add(rows, cursors.read(rows, item))
        left[rows] -= 1


def _block_sizes(cursors: Cursors) -> Ints:
    sizes = cursors.zigzag()
    cursors.refuse(sizes == np.iinfo(np.int64).min)
    sized = np.flatnonzero(sizes < 0)
    if len(sized):
        cursors.read(sized, Cursors.zigzag)
    return np.abs(sizes)

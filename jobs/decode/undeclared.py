"""Fields of a record's schema that have no column, or whose column is too narrow, with the types that fit them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from jobs.decode.unknown import Watch
from jobs.schema.found_fields import FoundField, FoundFields, Path
from jobs.schema.types import is_wider
from jobs.schema.wire import Wire, natural_type, with_text
from resources.errors import ConfigurationError


def undeclared(wire: Wire, kind: pa.DataType, watch: Watch | None) -> FoundFields:
    """The fields, counted as if one record had them; the type is None if no column can have it.

    Args:
        kind: the declared columns, without the one for rescued fields.
    """
    found = undeclared_wires(wire, kind, watch)
    return FoundFields({path: FoundField(_column_type(inner, path), 1) for path, inner in found})


def undeclared_wires(wire: Wire, kind: pa.DataType, watch: Watch | None) -> Iterator[tuple[Path, Wire]]:
    """The paths and wire types of these fields."""
    if watch is None or wire.kind != "record" or not pa.types.is_struct(kind):
        return iter(())
    return (one for one in _in_record(wire, kind, (), watch.widens) if watch.observes(one[0]))


def undeclared_part(wire: Wire, kind: pa.DataType, watch: Watch) -> Wire:
    """The record's type with only the fields that have no column and that the watch observes."""
    part = _part(wire, kind)
    if watch.within:
        return replace(part, fields=tuple(f for f in part.fields if f[0] in watch.within))
    return replace(part, fields=tuple(f for f in part.fields if not (watch.passing and f[0].startswith(watch.passing))))


def _part(wire: Wire, kind: pa.DataType) -> Wire:
    if wire.kind == "record" and pa.types.is_struct(kind):
        known = {f.name: f.type for f in kind}
        fields = ((name, _part(inner, known[name]) if name in known else inner) for name, inner in wire.fields)
        return replace(wire, fields=tuple(fields))
    if wire.kind == "array" and pa.types.is_list(kind):
        return replace(wire, items=(_part(wire.items[0], kind.value_type),))
    if wire.kind == "map" and pa.types.is_map(kind):
        return replace(wire, items=(wire.items[0], _part(wire.items[1], kind.item_type)))
    return Wire("null")


def _in_record(wire: Wire, kind: pa.StructType, path: Path, widens: frozenset[Path]) -> Iterator[tuple[Path, Wire]]:
    known = {f.name: f.type for f in kind}
    for name, inner in wire.fields:
        here = (*path, name)
        if name in known:
            yield from _in(inner, known[name], here, widens)
        elif inner.kind != "null":
            yield here, inner


def _in(wire: Wire, kind: pa.DataType, path: Path, widens: frozenset[Path]) -> Iterator[tuple[Path, Wire]]:
    if path in widens and is_wider(kind, _column_type(wire, path)):
        yield path, wire
    elif wire.kind == "record" and pa.types.is_struct(kind):
        yield from _in_record(wire, kind, path, widens)
    elif wire.kind == "array" and pa.types.is_list(kind):
        yield from _in(wire.items[0], kind.value_type, (*path, "element"), widens)
    elif wire.kind == "map" and pa.types.is_map(kind):
        yield from _in(wire.items[1], kind.item_type, (*path, "value"), widens)


def _column_type(wire: Wire, path: Path) -> pa.DataType | None:
    try:
        return natural_type(with_text(wire), ".".join(path))
    except ConfigurationError:
        return None

"""Fields of a record's schema that have no column, or whose column is too narrow, with the types that fit them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from jobs.decode.unknown import Watch
from jobs.schema.found_fields import FoundField, FoundFields, Path
from jobs.schema.types import inside, is_wider
from jobs.schema.wire import Wire, natural_type, parts_of, with_text
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
    if watch is None or wire.kind != "record":
        return iter(())
    return (one for one in _in(wire, kind, (), watch.widens) if watch.observes(one[0]))


def undeclared_part(wire: Wire, kind: pa.DataType, watch: Watch) -> Wire:
    """The record's type with only the fields that have no column and that the watch observes."""
    part = _part(wire, kind)
    if watch.within:
        return replace(part, fields=tuple(f for f in part.fields if f[0] in watch.within))
    return replace(part, fields=tuple(f for f in part.fields if not (watch.passing and f[0].startswith(watch.passing))))


def _part(wire: Wire, kind: pa.DataType) -> Wire:
    parts, known = parts_of(wire, kind), {f.name: f.type for f in inside(kind)}
    if not parts:
        return Wire("null")
    for name in parts.keys() & known.keys():
        parts[name] = _part(parts[name], known[name])
    if wire.kind == "record":
        return replace(wire, fields=tuple(parts.items()))
    return replace(wire, items=(*wire.items[:-1], *parts.values()))


def _in(wire: Wire, kind: pa.DataType, path: Path, widens: frozenset[Path]) -> Iterator[tuple[Path, Wire]]:
    known = {f.name: f.type for f in inside(kind)}
    for name, part in parts_of(wire, kind).items():
        here = (*path, name)
        if name in known and not (here in widens and is_wider(known[name], _column_type(part, here))):
            yield from _in(part, known[name], here, widens)
        elif name in known or part.kind != "null":
            yield here, part


def _column_type(wire: Wire, path: Path) -> pa.DataType | None:
    try:
        return natural_type(with_text(wire), ".".join(path))
    except ConfigurationError:
        return None

"""Translates types of existing columns to types of a pipeline file. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from jobs.destinations.clickhouse.columns import ARROW, OWN, SCALARS, Column, clickhouse_type
from jobs.destinations.clickhouse.named_types import bare, fields, holds_null, parts
from jobs.destinations.takes import Takes
from jobs.evolution import evolved
from jobs.schema.types import inside, with_inside

_FIXED = re.compile(r"FixedString\((\d+)\)")


def declared_field(name: str, scalar: Callable[[str], pa.Field | None] | None = None) -> pa.Field | None:
    """The declared type for this ClickHouse type, as a field without a name; None if there is none.

    Arrays, maps and tuples count as nullable: `null_collections` decides what becomes of null.

    Args:
        scalar: the same for types that are none of these. None: the declared type that becomes this one.
    """
    before, stored = stored_type(name)
    if before:
        return declared_field(stored, scalar)
    outer, arguments = parts(name)
    if outer not in ("Array", "Map", "Tuple"):
        return (scalar or _scalar)(name)
    titles = ("element",) if outer == "Array" else ("key", "value")
    named = fields(name) if outer == "Tuple" else dict(zip(titles, arguments, strict=True))
    if named is None:
        return None
    kinds = {title: declared_field(kind, scalar) for title, kind in named.items()}
    inner = [found.with_name(title) for title, found in kinds.items() if found is not None]
    if len(inner) < len(kinds):
        return None
    if outer == "Tuple":
        return pa.field("", pa.struct(inner))
    return pa.field("", pa.list_(inner[0]) if outer == "Array" else pa.map_(inner[0].type, inner[1]))


def stored_type(name: str) -> tuple[str, str]:
    """The type whose values the column takes and returns, and what is before it: `LowCardinality(`,
    `SimpleAggregateFunction(sum, `, or nothing."""
    outer, arguments = parts(name)
    if outer == "LowCardinality":
        return "LowCardinality(", arguments[0]
    return (f"{outer}({arguments[0]}, ", arguments[1]) if outer == "SimpleAggregateFunction" else ("", name)


def _scalar(name: str) -> pa.Field | None:
    outer, arguments = parts(name)
    nullable = outer == "Nullable"
    bare = arguments[0] if nullable else name.strip()
    decimal = re.fullmatch(r"Decimal\((\d+), (\d+)\)", bare)
    if decimal and int(decimal[1]) <= 38:
        return pa.field("", pa.decimal128(int(decimal[1]), int(decimal[2])), nullable)
    return pa.field("", ARROW[bare], nullable) if bare in ARROW else None


def _own(name: str) -> pa.Field | None:
    """The type for text and bytes of a form (`jobs.schema.types.own_type`); None: it is none."""
    fixed = _FIXED.fullmatch(bare(name))
    kind = pa.binary(int(fixed[1])) if fixed else OWN.get(bare(name))
    return None if kind is None else pa.field("", kind, holds_null(name))


def column_takes(present: Mapping[str, str], names: Collection[str]) -> dict[str, Takes]:
    """What the columns of these names accept, if their types correspond to declared types."""
    known = {name: _own(present[name]) or declared_field(present[name]) for name in names if name in present}
    return {
        name: Takes(found.type, found.nullable, also=partial(_are_one, found.type))
        for name, found in known.items()
        if found is not None
    }


def compared_types(columns: Sequence[Column], present: Mapping[str, str]) -> dict[str, str]:
    """The types in which columns are compared that have more nested fields than the file declares: the table's own
    types without these fields."""
    found = dict[str, str]()
    for c in columns:
        own = pa.types.is_nested(c.arrow) and not c.declared and c.name in present
        there = declared_field(present[c.name]) if own else None
        if there is not None and (part := without_own_fields(there.type, c.arrow)) != there.type:
            found[c.name] = clickhouse_type(part, False)
    return found


def _are_one(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether ClickHouse does not distinguish the types: text and bytes, times with and without a zone."""
    return kind in SCALARS and SCALARS.get(other) == SCALARS[kind]


def without_own_fields(present: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """The present type without fields that the declared one lacks: these are the table's own, and have defaults."""
    if present.id != declared.id:
        return present
    wanted = {f.name: f.type for f in inside(declared)}
    shared = [f for f in inside(present) if f.name in wanted]
    return with_inside(present, [f.with_type(without_own_fields(f.type, wanted[f.name])) for f in shared])


def like_declared(present: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """The present type, with the declared types in place of those that ClickHouse does not distinguish from them."""
    if _are_one(present, declared):
        return declared
    wanted = {f.name: f.type for f in inside(declared)}
    made = with_inside(
        present,
        [f.with_type(like_declared(f.type, wanted[f.name])) if f.name in wanted else f for f in inside(present)],
    )
    if pa.types.is_map(present) and pa.types.is_map(declared):
        return pa.map_(like_declared(present.key_type, declared.key_type), made.item_field)
    return made


def column_there(column: Column, found: str | None) -> Column:
    """The column for inserts into one of this type (None: there is none). It may hold more than the file says: nulls
    where it was added later, and larger numbers."""
    if found is None:
        return column
    nullable, kind = column.nullable or holds_null(found), column.arrow
    if not column.declared and (there := declared_field(found)) is not None:
        kind = evolved(like_declared(without_own_fields(there.type, kind), kind), kind)
    return replace(column, nullable=nullable, arrow=kind, wire=clickhouse_type(kind, nullable))

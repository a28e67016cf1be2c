"""Translates types of existing columns to types of a pipeline file. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import pyarrow as pa

from jobs.destinations.clickhouse.columns import ARROW, SCALARS, Column, clickhouse_type
from jobs.destinations.clickhouse.named_types import fields, parts
from jobs.destinations.takes import Takes


def arrow_type(name: str) -> tuple[pa.DataType, bool] | None:
    """The declared type that becomes this ClickHouse type, and its nullability; None if there is none."""
    found = declared_field(name, _scalar)
    return None if found is None else (found.type, found.nullable)


def declared_field(name: str, scalar: Callable[[str], pa.Field | None]) -> pa.Field | None:
    """The declared type for this ClickHouse type, as a field without a name; None if there is none.

    Arrays, maps and tuples count as nullable: `null_collections` decides what becomes of null.

    Args:
        scalar: the same for types that are none of these.
    """
    outer, arguments = parts(name)
    if outer not in ("Array", "Map", "Tuple"):
        return scalar(name)
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


def _scalar(name: str) -> pa.Field | None:
    outer, arguments = parts(name)
    nullable = outer == "Nullable"
    bare = arguments[0] if nullable else name.strip()
    decimal = re.fullmatch(r"Decimal\((\d+), (\d+)\)", bare)
    if decimal and int(decimal[1]) <= 38:
        return pa.field("", pa.decimal128(int(decimal[1]), int(decimal[2])), nullable)
    return pa.field("", ARROW[bare], nullable) if bare in ARROW else None


def taken(present: Mapping[str, str], names: Collection[str]) -> dict[str, Takes]:
    """What the columns of these names accept, if their types correspond to declared types."""
    known = {name: arrow_type(present[name]) for name in names if name in present}
    return {name: Takes(*found, also=partial(_are_one, found[0])) for name, found in known.items() if found}


def compared_types(columns: Sequence[Column], present: Mapping[str, str]) -> dict[str, str]:
    """The types in which columns are compared that have more nested fields than the file declares: the table's own
    types without these fields."""
    found = dict[str, str]()
    for c in columns:
        own = pa.types.is_nested(c.arrow) and not c.declared and c.name in present
        there = arrow_type(present[c.name]) if own else None
        if there and (part := declared_part(there[0], c.arrow)) != there[0]:
            found[c.name] = clickhouse_type(part, False)
    return found


def _are_one(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether ClickHouse does not distinguish the types: text and bytes, times with and without a zone."""
    return kind in SCALARS and SCALARS.get(other) == SCALARS[kind]


def declared_part(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """The type `old` without fields that `new` lacks: these are the table's own, and have defaults."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        wanted = {f.name: f.type for f in new}
        return pa.struct([f.with_type(declared_part(f.type, wanted[f.name])) for f in old if f.name in wanted])
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(old.value_field.with_type(declared_part(old.value_type, new.value_type)))
    if pa.types.is_map(old) and pa.types.is_map(new):
        return pa.map_(old.key_type, old.item_field.with_type(declared_part(old.item_type, new.item_type)))
    return old

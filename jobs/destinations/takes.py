"""The types that columns of existing tables accept, and the type of a new column that suits all tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa

from jobs.evolution import plain
from jobs.schema.found_fields import Path
from jobs.schema.types import inside, is_wider, type_name, with_inside
from resources.errors import ConfigurationError


def _nothing_else(_: pa.DataType) -> bool:
    return False


@dataclass(frozen=True)
class Takes:
    """What one column accepts.

    Attributes:
        type: the column's type. If it has no type string (`jobs.schema.types`), no type of records fits it.
        nullable: accepts null.
        also: whether it accepts another type as well (bytes, in a system with one type for text and bytes).
    """

    type: pa.DataType
    nullable: bool = True
    also: Callable[[pa.DataType], bool] = _nothing_else

    def as_well(self, kind: pa.DataType) -> bool:
        return plain(kind) == plain(self.type) or self.also(kind)

    def at_all(self, kind: pa.DataType) -> bool:
        """Whether the column accepts values of this type, also of a narrower type than its own."""
        return self.as_well(kind) or is_wider(kind, self.type)


Taking = Callable[[Collection[str]], Mapping[str, Mapping[str, Takes]]]
"""From names of row columns to what each table, by name, accepts in those that it has."""


def takes_nothing(_: Collection[str]) -> Mapping[str, Mapping[str, Takes]]:
    """For pipelines without an existing table."""
    return {}


def of_schema(present: pa.Schema | None, names: Collection[str]) -> dict[str, Takes]:
    """What the columns of these names accept, compared without case; empty if there is no table."""
    known = {f.name.lower(): f for f in present or ()}
    found = {name: known.get(name.lower()) for name in names}
    return {name: Takes(f.type, f.nullable) for name, f in found.items() if f is not None}


def fitted(found: pa.DataType | None, path: Path, tables: Mapping[str, Mapping[str, Takes]]) -> pa.DataType | None:
    """The type of a column that records bring at this path: that of the tables that have it, else the records'.

    Raises:
        ConfigurationError: no type fits all tables; names them.
    """
    there = {name: column for name, columns in tables.items() if (column := _at(columns.get(path[0]), path[1:]))}
    return _fitted(found, there)


def is_required(path: Path, tables: Mapping[str, Mapping[str, Takes]]) -> bool:
    """Whether one of the tables does not accept null in the column."""
    return len(path) == 1 and any(path[0] in columns and not columns[path[0]].nullable for columns in tables.values())


def _fitted(found: pa.DataType | None, tables: Mapping[str, Takes]) -> pa.DataType | None:
    if not tables or (found is not None and all(column.as_well(found) for column in tables.values())):
        return found
    if found is not None and pa.types.is_nested(found) and all(c.type.id == found.id for c in tables.values()):
        return _fitted_nested(found, tables)
    own = [column.type for column in tables.values() if _name(column.type)]
    for kind in [*own, *([found] if found is not None else [])]:
        if all(column.at_all(kind) for column in tables.values()):
            return kind
    shown = {name: _name(c.type) or f"{c.type} (which no column of a pipeline can be)" for name, c in tables.items()}
    where = ", ".join(f"{kind} in {name}" for name, kind in shown.items())
    raise ConfigurationError(f"no type of a column goes into all tables that have it: {where}")


def _fitted_nested(found: pa.DataType, tables: Mapping[str, Takes]) -> pa.DataType:
    parts = []
    for field in inside(found):
        there = {name: part for name, column in tables.items() if (part := _at(column, (field.name,)))}
        parts.append(field.with_type(_fitted(field.type, there)))
    return with_inside(found, parts)


def _at(column: Takes | None, path: Path) -> Takes | None:
    """The nested part of a column at this path."""
    for step in path:
        parts = inside(column.type) if column else []
        column = next((Takes(f.type, f.nullable) for f in parts if f.name.lower() == step.lower()), None)
    return column


def _name(kind: pa.DataType) -> str | None:
    """The type string; None: no column of a pipeline can be of this type."""
    try:
        return type_name(kind)
    except ConfigurationError:
        return None

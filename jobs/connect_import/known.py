"""A table that a connector has filled, and what the pipeline file needs to continue it unchanged. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from jobs.schema.types import parse_columns, type_name
from jobs.spec.columns import optional
from sql import quote

NOT_NULL = " not null"


@dataclass(frozen=True)
class KnownTable:
    """
    Attributes:
        columns: types of a pipeline file, with `not null` if the table does not accept null.
        native: types of the table's system, which `column_types` may have to name.
        usual: the system's default type for a declared column.
        key: columns that identify a row, if the table has a key.
        fixed: further columns that no run can make optional.
        options: further options of the table's entry.
        zones: of columns in which the system reads times without a zone as those of another zone than UTC.
        lacks_ours: whether it has none of the columns that we add to tables of its kind.
        todo: what a person has to check.
    """

    columns: Mapping[str, str]
    native: Mapping[str, str] = field(default_factory=dict)
    usual: Callable[[pa.Field], str] = field(default=lambda column: str(column.type))
    key: Sequence[str] = ()
    fixed: Collection[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    lacks_ours: bool = False
    todo: Sequence[str] = ()

    @property
    def required(self) -> list[str]:
        """Columns that take no null, or have parts that take none."""
        return [column.name for column in parse_columns(self.columns) if column != optional(column)]

    def entry(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """Options of the table's entry in `tables`, for a pipeline whose rows have these columns."""
        types = {
            column.name: self.native[column.name]
            for column in parse_columns(columns)
            if column.name in self.native and self.native[column.name] != self.usual(column)
        }
        return {**self.options, **({"column_types": types} if types else {})}


def all_of(tables: Collection[KnownTable], besides: Collection[str] = ()) -> dict[str, str]:
    """The columns of several tables besides these; if their types differ, the first table's.

    `not null` only if all tables require it, so that rows of tables that do not are valid.
    """
    found: dict[str, str] = {}
    for table in tables:
        for name, kind in table.columns.items():
            if name not in besides:
                found.setdefault(name, kind)
    optional = [name for name in found if not all(t.columns.get(name, "").endswith(NOT_NULL) for t in tables)]
    return {name: kind.removesuffix(NOT_NULL) if name in optional else kind for name, kind in found.items()}


def struct_columns(kind: str) -> dict[str, str]:
    """The fields of a struct with their types; none if it is not a struct."""
    found = parse_columns({"column": kind}).field(0).type
    inner = list(found) if pa.types.is_struct(found) else []
    return {f.name: type_name(f.type) + ("" if f.nullable else NOT_NULL) for f in inner}


def struct_of(columns: Mapping[str, str]) -> str:
    """The type of a struct with these fields."""
    fields = [f"{quote('spark', name)}: {kind}" for name, kind in columns.items()]
    return f"struct<{', '.join(fields)}>"

"""What a value lacks of a column's nested fields, and what it has besides. Pure.

A field may be in the table alone (somebody has added it) or in the landed values alone (the file no longer declares
it). Arrow's casts of structs fill and drop such fields; Spark's writes refuse the rows: so the values get the table's
fields before, by `sql/spark/nested_value.sql.j2`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from jobs.schema.types import landed_type, type_name
from resources.errors import ConfigurationError
from sql import quote


@dataclass(frozen=True)
class NestedField:
    """A field of a struct in the table.

    Attributes:
        given: its name in the value; None: the value lacks it.
        type: in Spark SQL.
        change: of its own value.
    """

    name: str
    given: str | None
    type: str
    change: NestedChange | None


@dataclass(frozen=True)
class NestedChange:
    """How a value gets a column's nested fields.

    Attributes:
        fields: of a struct, in the table's order.
        inner: of the elements of a list, or of the values of a map.
    """

    kind: Literal["struct", "list", "map"]
    fields: tuple[NestedField, ...] = ()
    inner: NestedChange | None = None


def nested_changes(given: Mapping[str, pa.DataType], table: pa.Schema) -> dict[str, NestedChange]:
    """The changes of the given columns whose nested fields are not the table's. Names are compared without case."""
    wanted = {field.name.lower(): field.type for field in table}
    found = {name: nested_change(kind, wanted.get(name.lower(), kind)) for name, kind in given.items()}
    return {name: change for name, change in found.items() if change}


def nested_change(given: pa.DataType, wanted: pa.DataType) -> NestedChange | None:
    """How values of a type get the nested fields of another, in their order; None: they have them."""
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        named = {field.name.lower(): field for field in given}
        fields = tuple(_field(named.get(field.name.lower()), field) for field in wanted)
        same = [f.name for f in given] == [f.name for f in wanted] and not any(f.change for f in fields)
        return None if same else NestedChange("struct", fields)
    if pa.types.is_list(given) and pa.types.is_list(wanted):
        inner = nested_change(given.value_type, wanted.value_type)
        return NestedChange("list", inner=inner) if inner else None
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        inner = nested_change(given.item_type, wanted.item_type)
        return NestedChange("map", inner=inner) if inner else None
    return None


def type_at(schema: pa.Schema, path: Sequence[str]) -> pa.DataType | None:
    """The type at a path of names in a schema; None: there is none."""
    kind: pa.DataType = pa.struct(list(schema))
    for name in path:
        found = [f.type for f in kind if f.name.lower() == name.lower()] if pa.types.is_struct(kind) else []
        if not found:
            return None
        kind = found[0]
    return kind


def _field(given: pa.Field | None, wanted: pa.Field) -> NestedField:
    if given is None:
        return NestedField(wanted.name, None, spark_type(wanted.type), None)
    return NestedField(wanted.name, given.name, spark_type(wanted.type), nested_change(given.type, wanted.type))


def spark_type(kind: pa.DataType) -> str:
    """A table's type in Spark SQL: `void`, whose null fits every type, for one without a type string (nanoseconds)."""
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{quote('spark', f.name)}: {spark_type(f.type)}" for f in kind) + ">"
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    try:
        return type_name(landed_type(kind))
    except ConfigurationError:
        return "void"

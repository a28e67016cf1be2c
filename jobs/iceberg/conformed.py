"""Landed or read columns in the types and the order of an Iceberg table's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa

from jobs.evolution import landed_otherwise
from jobs.schema.own_values import as_in_table
from jobs.schema.types import type_name


def conformed(columns: Mapping[str, pa.Array], schema: pa.Schema, where: str = "") -> pa.Table:
    """The columns in the types and order of the schema; columns that are not given are null.

    Names are compared without case, as Spark resolves them, unless the schema has the very name.

    Raises:
        SchemaRefused: a column cannot hold one of its values.
    """
    rows = len(next(iter(columns.values())))
    names = _spelled(columns, schema.names)
    given = {names[name]: array for name, array in columns.items()}
    arrays = []
    for field in schema:
        values = given[field.name] if field.name in given else pa.nulls(rows, field.type)
        arrays.append(_fitting(values, field, where))
    return pa.Table.from_arrays(arrays, schema=schema)


def _spelled(names: Iterable[str], wanted: Collection[str]) -> dict[str, str]:
    """Each name as it is spelled among the wanted ones, if it is there. Tables of others may have two spellings."""
    known, alike = {*wanted}, {name.lower(): name for name in wanted}
    return {name: name if name in known else alike.get(name.lower(), name) for name in names}


def _fitting(values: pa.Array, field: pa.Field, where: str) -> pa.Array:
    """The values in the column's type. Rows that were landed while the file declared less of a column may not fit into
    a table that was made since."""
    try:
        found = values if values.type.equals(field.type) else _cast(values, field.type)
    except pa.ArrowInvalid:
        what = f"column {field.name} is {type_name(field.type)}, which cannot hold a value that is landed"
        raise landed_otherwise(what, "with the type that it had then", where) from None  # Arrow's text has the value
    if found.null_count and not field.nullable:
        what = f"column {field.name} is `not null`, and a row that is landed has no value"
        raise landed_otherwise(what, "without `not null`", where)
    return found


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Casts with field names compared without case: Arrow's cast makes struct fields with another spelling null."""
    kind = _named_as(values.type, wanted)
    return as_in_table(values if kind.equals(values.type) else values.view(kind), wanted).cast(wanted)


def _named_as(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type `kind`, with the field names inside it spelled as in `wanted`."""
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        own, named = {field.name: field for field in kind}, {field.name: field for field in wanted}
        names = _spelled(own, named)
        return pa.struct([_renamed(field, named.get(names[name], field)) for name, field in own.items()])
    if pa.types.is_list(kind) and pa.types.is_list(wanted):
        return pa.list_(_renamed(kind.value_field, wanted.value_field))
    if pa.types.is_map(kind) and pa.types.is_map(wanted):
        return pa.map_(kind.key_field, _renamed(kind.item_field, wanted.item_field))
    return kind


def _renamed(field: pa.Field, wanted: pa.Field) -> pa.Field:
    return field.with_name(wanted.name).with_type(_named_as(field.type, wanted.type))

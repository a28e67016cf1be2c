"""Existing tables of the Iceberg sinks, which a pipeline continues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import NestedField, StructType

from jobs.connect_import.known import KnownTable
from jobs.iceberg.schema import arrow_schema
from jobs.schema.types import field_text, holds
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog


def known(catalog: IcebergCatalog, merges: bool, table: str) -> KnownTable | None:
    """The table of this name; None: there is none; `merges`: the sink updates and deletes rows."""
    found = catalog.load(table)
    if found is None:
        return None
    columns, todo = dict[str, str](), list[str]()
    for field in arrow_schema(found):
        if holds(field.type, pa.types.is_time):
            todo.append(
                f"{table}: {field.name} is of Iceberg's type time, and Spark 4.0 reads no such table: let "
                "pyiceberg or Trino replace it by one of text, or write to another table"
            )
            continue
        try:
            columns[field.name] = field_text(field)
        except ConfigurationError:
            kept = "gets no values any more" if field.nullable else "must not be required: make it optional first"
            todo.append(f"{table}: {field.name} is {field.type}, which no column of a pipeline file becomes: it {kept}")
    if merges and "write.merge.mode" not in found.properties:
        todo.append(
            f"{table}: without a property write.merge.mode merges rewrite the files they touch, where the sink wrote "
            "equality deletes; to have positions of rows written instead, rewrite its files once (Spark: "
            "rewrite_data_files), then set it to merge-on-read"
        )
    todo += [
        f"{table}: its name mapping gives the field {path} to {column}: where records have it, "
        f"write `{path}: {column}` in source.value.rename"
        for path, column in _other_names(found.schema().fields, found.name_mapping() or ())
    ]
    key = [name for name in found.schema().identifier_field_names() if name in columns]
    return KnownTable(columns, key=key, todo=todo)


def _other_names(
    fields: Iterable[NestedField], mapped: Iterable[MappedField], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Paths of fields that are called otherwise than their columns, with the columns' names: the sinks fill a column
    from every field that the table's name mapping names for it."""
    by_id = {one.field_id: one for one in mapped}
    for field in fields:
        one = by_id.get(field.field_id)
        if one is None:
            continue
        yield from ((".".join((*path, name)), field.name) for name in one.names if name != field.name)
        if isinstance(field.field_type, StructType):
            yield from _other_names(field.field_type.fields, one.fields, (*path, field.name))

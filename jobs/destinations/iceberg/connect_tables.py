"""Existing tables of the Iceberg sinks, which a pipeline continues."""

from __future__ import annotations

from jobs.connect_import.known import KnownTable
from jobs.iceberg.schema import arrow_schema
from jobs.schema.types import field_text
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog


def known(catalog: IcebergCatalog, merges: bool, table: str) -> KnownTable | None:
    """The table of this name; None: there is none; `merges`: the sink updates and deletes rows."""
    found = catalog.load(table)
    if found is None:
        return None
    columns, todo = dict[str, str](), list[str]()
    for field in arrow_schema(found):
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
    key = [name for name in found.schema().identifier_field_names() if name in columns]
    return KnownTable(columns, key=key, todo=todo)

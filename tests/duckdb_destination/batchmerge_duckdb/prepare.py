"""Makes the table, or adds and widens its columns, by the rules that every kind of table has (`jobs.evolution`)."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
from batchmerge.jobs.evolution import SchemaChange, evolved

from batchmerge_duckdb.database import run


def present_schema(db: duckdb.DuckDBPyConnection, table: str) -> pa.Schema | None:
    """The table's columns as Arrow; None where there is no table."""
    try:
        return run(db, "columns", table).to_arrow_table().schema
    except duckdb.CatalogException:
        return None


def create(db: duckdb.DuckDBPyConnection, table: str, columns: pa.Schema) -> None:
    """An empty table in the place of the one that may be there."""
    db.register("columns", columns.empty_table())
    run(db, "create", table)


def follow(
    db: duckdb.DuckDBPyConnection, table: str, present: pa.Schema, wanted: pa.Schema, changes: Sequence[SchemaChange]
) -> None:
    """Each column gets the type of its rows and the new ones. What DuckDB calls an Arrow type, it says itself."""
    old, new = ({field.name.lower(): field.type for field in schema} for schema in (present, wanted))
    for column in dict.fromkeys(change.path[0] for change in changes):
        kind, before = new[column.lower()], old.get(column.lower())
        rows = pa.schema([(column, evolved(before, kind) if before else kind)]).empty_table()
        template = "widen_column" if before else "add_column"
        run(db, template, table, column=column, type=str(db.from_arrow(rows).types[0]))

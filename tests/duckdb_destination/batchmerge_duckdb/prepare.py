"""Makes the table, or adds and widens its columns, by the rules that every kind of table has (`jobs.evolution`)."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
from batchmerge.jobs.destinations.requirements import require_create
from batchmerge.jobs.evolution import AddColumn, RelaxRequired, SchemaChange, plan_evolution
from batchmerge.jobs.spec.columns import RowColumn
from batchmerge.resources.errors import SchemaRefused
from batchmerge.sql import render

from batchmerge_duckdb.kind import DIALECT
from batchmerge_duckdb.spec import DuckDbTable


def present_schema(db: duckdb.DuckDBPyConnection, table: str) -> pa.Schema | None:
    """The table's columns as Arrow; None where there is no table."""
    try:
        return db.execute(render(DIALECT, "columns", table=table.split("."))).to_arrow_table().schema
    except duckdb.CatalogException:
        return None


def plan(
    name: str, table: DuckDbTable, columns: Sequence[RowColumn], present: pa.Schema | None, ignore_case: bool
) -> list[SchemaChange]:
    """What an existing table needs; nothing for one that has to be made.

    Raises:
        SchemaRefused: a change that no rule allows. ConfigurationError: the table may not be made.
    """
    if present is None:
        require_create(table, name)
        return []
    changes = plan_evolution(name, present, schema(columns), table.evolve, ignore_case)
    nested = [str(change) for change in changes if len(change.path) > 1]
    if nested:
        raise SchemaRefused("; ".join(nested), where=name, remedy="change the table by hand, then run again")
    return changes


def schema(columns: Sequence[RowColumn]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def create(db: duckdb.DuckDBPyConnection, table: str, columns: pa.Schema) -> None:
    db.register("columns", columns.empty_table())
    db.execute(render(DIALECT, "create", table=table.split("."), columns="columns"))


def apply(db: duckdb.DuckDBPyConnection, table: str, changes: Sequence[SchemaChange], wanted: pa.Schema) -> None:
    """Arrow names the types, so DuckDB says what they are called there."""
    types = dict(zip(wanted.names, map(str, db.from_arrow(wanted.empty_table()).types), strict=True))
    for change in changes:
        if not isinstance(change, RelaxRequired):
            template = "add_column" if isinstance(change, AddColumn) else "widen_column"
            (column,) = change.path
            db.execute(render(DIALECT, template, table=table.split("."), column=column, type=types[column]))

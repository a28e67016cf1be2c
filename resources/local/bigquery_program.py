"""The emulator's own program (`local-bigquery`), with changes that make its many small statements cheap.

What a statement does is not changed. The emulator itself looks for a table in DuckDB's lists of all tables and columns
of all projects, several times for each statement: 1 ms for each table.
"""

from __future__ import annotations

from typing import Any

import duckdb
from local_bigquery.cli import main
from local_bigquery.engine import database
from local_bigquery.jobs import query

_connect = duckdb.connect
_fetch = database.fetch
_objects = database.objects
_execute = query.execute

# The id of a table or a view, from DuckLake's own tables at the newest snapshot.
_NAMED = """
SELECT {kind}_id
FROM {metadata}.ducklake_{kind} named JOIN {metadata}.ducklake_schema s USING (schema_id)
WHERE named.end_snapshot IS NULL AND s.end_snapshot IS NULL AND s.schema_name = $1 AND named.{kind}_name = $2
"""
_ROWS = "SELECT record_count FROM {metadata}.ducklake_table_stats WHERE table_id = $1"

# The emulator's queries about a table's columns, each with a query of the same answer that reads this table only.
_OF = "FROM duckdb_columns() WHERE database_name = ? AND schema_name = ? AND table_name = ? AND"
_COLUMNS = {
    f"SELECT column_name {_OF} NOT is_nullable": 'SELECT name FROM pragma_table_info(?) WHERE "notnull"',
    f"SELECT 1 {_OF} column_name = ?": "SELECT 1 FROM pragma_table_info(?) WHERE name = ?",
}
_TEMPORARY_TABLES = "SELECT table_name FROM duckdb_tables() WHERE temporary"


def _connect_with_one_thread(*args: Any, **options: Any) -> Any:
    """A second thread of DuckDB costs more than it brings."""
    return _connect(*args, **{**options, "config": {"threads": 1, **options.get("config", {})}})


def _find(project: str, dataset: str, table: str | None = None) -> list[tuple[str, str, int]]:
    """Whether a table exists, and how many rows it has: the emulator asks before and after each statement."""
    if table is None:
        return list(_objects(project, dataset, table))
    if project not in database._attached:  # results of queries, beside the projects
        try:
            ((rows,),) = database.fetch(f"SELECT count(*) FROM {database.quote(project, dataset, table)}")
            return [(table, "TABLE", rows)]
        except duckdb.CatalogException:
            return []
    metadata = database.quote(f"__ducklake_metadata_{project}")
    for kind in ("table", "view"):
        for (found,) in database.fetch(_NAMED.format(metadata=metadata, kind=kind), [dataset, table]):
            counted = database.fetch(_ROWS.format(metadata=metadata), [found]) if kind == "table" else []
            return [(table, kind.upper(), counted[0][0] if counted else 0)]
    return []


def _fetch_columns(text: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    if text not in _COLUMNS or not values:
        return list(_fetch(text, values))
    try:
        return list(_fetch(_COLUMNS[text], [database.quote(*values[:3]), *values[3:]]))
    except duckdb.ProgrammingError:  # no such table
        return []


class _NewCursor:
    """A cursor that was opened for one job: it has no temporary tables yet."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def sql(self, text: str, **options: Any) -> duckdb.DuckDBPyRelation:
        return self._cursor.sql("SELECT '' LIMIT 0" if text == _TEMPORARY_TABLES else text, **options)


def _execute_on_new_cursor(cursor: Any, *args: Any, session: Any = None, **options: Any) -> Any:
    return _execute(cursor if session else _NewCursor(cursor), *args, session=session, **options)


if __name__ == "__main__":
    duckdb.connect = _connect_with_one_thread
    database.objects = _find
    database.fetch = _fetch_columns
    query.execute = _execute_on_new_cursor
    main()

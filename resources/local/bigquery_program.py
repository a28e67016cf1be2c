"""The emulator's own program (`local-bigquery`), with two changes that make its many small statements cheap.

Nothing else of it is changed: what a statement does is the emulator's.
"""

from __future__ import annotations

from typing import Any

import duckdb
from local_bigquery.cli import main
from local_bigquery.engine import database

_connect = duckdb.connect
_objects = database.objects

# Of DuckLake's own tables, as of its newest snapshot.
_NAMED = """
SELECT {kind}_id
FROM {metadata}.ducklake_{kind} named JOIN {metadata}.ducklake_schema s USING (schema_id)
WHERE named.end_snapshot IS NULL AND s.end_snapshot IS NULL AND s.schema_name = $1 AND named.{kind}_name = $2
"""
_ROWS = "SELECT record_count FROM {metadata}.ducklake_table_stats WHERE table_id = $1"


def _connect_with_one_thread(*args: Any, **options: Any) -> Any:
    """A second thread of DuckDB costs more than it brings."""
    return _connect(*args, **{**options, "config": {"threads": 1, **options.get("config", {})}})


def _find(project: str, dataset: str, table: str | None = None) -> list[tuple[str, str, int]]:
    """What the emulator asks before and after each statement: whether a table is there, and how many rows it has.

    It reads `duckdb_tables()`, which counts the columns of every table of all projects: 1 ms a table, several times
    a statement.
    """
    if table is None:
        return list(_objects(project, dataset, table))
    if project not in database._attached:  # results of queries, beside the projects
        try:
            return [
                (
                    table,
                    "TABLE",
                    database.fetch(f"SELECT count(*) FROM {database.quote(project, dataset, table)}")[0][0],
                )
            ]
        except duckdb.CatalogException:
            return []
    metadata = database.quote(f"__ducklake_metadata_{project}")
    for kind in ("table", "view"):
        for (found,) in database.fetch(_NAMED.format(metadata=metadata, kind=kind), [dataset, table]):
            rows = database.fetch(_ROWS.format(metadata=metadata), [found]) if kind == "table" else []
            return [(table, kind.upper(), rows[0][0] if rows else 0)]
    return []


if __name__ == "__main__":
    duckdb.connect = _connect_with_one_thread
    database.objects = _find
    main()

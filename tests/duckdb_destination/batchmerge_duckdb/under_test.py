"""What the behaviour suite of Batchmerge has to know of DuckDB (`tests/kit/kind.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
from batchmerge.jobs.destinations.base import Destination
from batchmerge.resources.connections import Connections

from batchmerge_duckdb.spec import DuckDbConnection
from tests.kit.kind import USUAL, KindUnderTest
from tests.kit.model import Row


class DuckDb(KindUnderTest):
    name = "duckdb"
    needs_state = ("append",)
    names = ("raw_orders",)
    written = "duckdb.written"
    replayed = ("duckdb.written", "duckdb.committed")
    committed = "duckdb.committed"

    def connection(self, home: Path) -> Mapping[str, object]:
        return {"kind": "duckdb", "file": str(home / "tables.duckdb")}

    def rows(self, connections: Connections, table: str, columns: Sequence[str] = USUAL) -> list[dict[str, object]]:
        with _open(connections) as db:
            found: list[dict[str, object]] = (
                db.sql(f"SELECT {', '.join(columns)} FROM {table}").to_arrow_table().to_pylist()
            )
        return found

    def remove(self, connections: Connections, table: str, below: int) -> None:
        with _open(connections) as db:
            db.execute(f"DELETE FROM {table} WHERE id < {below}")

    def plant(self, connections: Connections, table: str, row: Row) -> None:
        with _open(connections) as db:
            db.execute(f"INSERT INTO {table} (id, name, amount) VALUES (?, ?, ?)", list(row))

    def drop(self, connections: Connections, table: str) -> None:
        with _open(connections) as db:
            db.execute(f"DROP TABLE {table}")

    def recreate(self, connections: Connections, table: str) -> None:
        with _open(connections) as db:
            db.execute(f"CREATE OR REPLACE TABLE {table} AS FROM {table} LIMIT 0")

    def lose_state(self, connections: Connections, destination: Destination) -> None:
        with _open(connections) as db:
            db.execute("DELETE FROM batchmerge_state WHERE table_name = ?", [destination.table.table])


def _open(connections: Connections) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(connections.get("duckdb", DuckDbConnection).file)


DUCKDB = DuckDb()

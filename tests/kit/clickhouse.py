"""ClickHouse tables under test: flows into them, and a reader of what they hold."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.pipeline import Pipeline
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections
from resources.errors import Unavailable
from tests.kit.flow import Flow
from tests.kit.model import Row
from tests.kit.waiting import until

_ENGINE = "SELECT engine FROM system.tables WHERE database = {database:String} AND name = {table:String}"


def clickhouse_flow(topic: str, modes: list[str], max_records: int = 1000, **options: object) -> Flow:
    """A pipeline with one ClickHouse table a mode; `options` are the tables' own."""
    return Flow(topic, modes, max_records, table_options={"chunk_rows": 50, **options}, kind="clickhouse")


def servers(connections: Connections, connection: str = "clickhouse") -> list[ClickHouseServer]:
    known = connections.get(connection, ClickHouseConnection)
    return [ClickHouseServer(connection, known, endpoint) for endpoint in known.endpoints]


def until_up(server: ClickHouseServer, process: subprocess.Popen[bytes] | None = None) -> None:
    """Waits until the server answers; fails if its process, where it is given, has ended."""

    def answers() -> bool:
        assert process is None or process.poll() is None, "the server has ended"
        try:
            return bool(server.rows("SELECT 1"))
        except Unavailable:
            return False

    until(answers, what="answer of the server")


def select(
    connections: Connections, table: str, columns: Sequence[str], connection: str = "clickhouse"
) -> list[dict[str, object]]:
    """These columns of the rows that a table has now on all endpoints."""
    database, name = ClickHouseTable.path_of(table)
    found = []
    for server in servers(connections, connection):
        asked = {"database": database, "table": name}
        engine = server.rows(_ENGINE, asked)
        final = "FINAL" if "Replacing" in engine[0]["engine"] else ""
        found += server.rows(f"SELECT {', '.join(columns)} FROM `{database}`.`{name}` {final}")
    return found


def rows(connections: Connections, table: str, connection: str = "clickhouse") -> list[Row]:
    """What a table of the usual records holds now, sorted."""
    found: list[Any] = select(connections, table, ("id", "name", "amount"), connection)
    return sorted((row["id"], row["name"], row["amount"]) for row in found)


def destination(pipeline: Pipeline, table: str) -> ClickHouseDestination:
    found = pipeline.destination(table)
    assert isinstance(found, ClickHouseDestination)
    return found

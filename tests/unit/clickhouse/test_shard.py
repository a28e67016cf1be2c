"""Statements that stop older owners when a lease is taken over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.clickhouse.tables import layout_of
from resources.connections import ClickHouseConnection
from tests.kit import specs


@dataclass
class Server:
    """Keeps the statements."""

    connection: ClickHouseConnection
    name: str = "clickhouse"
    endpoint: str = "h:1"
    sent: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def execute(self, sql: str, settings: dict[str, object] | None = None) -> int:
        self.sent.append((sql, settings or {}))
        return 0


def shard(server: Any, cluster: str | None) -> Shard:
    spec = specs.spec(specs.table("clickhouse", "append", "d.t"), columns=specs.ID)
    (table,) = spec.tables
    assert isinstance(table, ClickHouseTable)
    return Shard("p", spec, table, server, 1, layout_of(spec, table, 0, cluster), (), None)


@pytest.mark.parametrize(("limit", "seconds"), [(300, 15), (10, 5)])
def test_older_inserts_are_stopped_here_and_where_the_cluster_answers(limit: int, seconds: int) -> None:
    """A dead replica has nothing to stop: it is neither waited for nor an error."""
    server = Server(ClickHouseConnection(kind="clickhouse", endpoints=["h:1"], statement_timeout_seconds=limit))
    shard(server, "c").stop_older(Lease(epoch=10))
    (here, none), (everywhere, settings) = server.sent
    assert ("ON CLUSTER" in here, none) == (False, {})
    assert "ON CLUSTER `c`" in everywhere
    silent = {"distributed_ddl_output_mode": "null_status_on_timeout", "distributed_ddl_task_timeout": seconds}
    assert settings == silent


def test_without_a_cluster_one_server_is_asked() -> None:
    server = Server(ClickHouseConnection(kind="clickhouse", endpoints=["h:1"]))
    shard(server, None).stop_older(Lease(epoch=10))
    assert [("ON CLUSTER" in sql, settings) for sql, settings in server.sent] == [(False, {})]

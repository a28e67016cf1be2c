"""What upkeep sends to which endpoint, and how long it waits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.clickhouse.shard import Shard
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection
from tests.kit import specs


class Server:
    """A server with a table of two partitions, of which one has rows of deletes, and the leases of its endpoints."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: str = "ReplacingMergeTree", **lease: object) -> None:
        self.asked: list[tuple[str, int, str]] = []
        self.engine = engine
        self.lease: dict[str, Any] = {
            "name": "p/d.t/1", "change": "c", "epoch": 3, "owner": "", "run_id": "r", "first": 0, "last": 0,
            "topic_id": "", "batch": 0, "commit_id": "", "chunk_rows": 0, "state": "", "endpoints": ["h:1"],
            "phase": "", "table_id": "", "changed_at": datetime.now(UTC), **lease,
        }  # fmt: skip

        def execute(
            at: ClickHouseServer, sql: str, parameters: Mapping[str, object] | None = None, *_: object, **__: object
        ) -> None:
            self.asked.append((at.endpoint, at.connection.statement_timeout_seconds, " ".join(sql.split())))
            self.lease.update({name: value for name, value in (parameters or {}).items() if name in self.lease})

        monkeypatch.setattr(ClickHouseServer, "execute", execute)
        monkeypatch.setattr(ClickHouseServer, "rows", lambda _, sql, *__: self._rows(sql))
        monkeypatch.setattr(Shard, "require_table", lambda _: SimpleNamespace(engine=self.engine))

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        return [{"id": "7"}] if "_partition_id" in sql else [dict(self.lease)]

    @property
    def rewritten(self) -> list[tuple[str, int, str]]:
        return [asked for asked in self.asked if "OPTIMIZE" in asked[2]]


@pytest.mark.parametrize(
    ("endpoints", "where"), [(["h:1"], "`d`.`t` ON CLUSTER `c` PARTITION"), (["h:1", "h:2"], "`d`.`t` PARTITION")]
)
def test_only_partitions_with_deletes_are_rewritten(
    endpoints: list[str], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each server is asked once, and given time."""
    server = Server(monkeypatch)
    destination = opened("upsert_delete", ClickHouseConnection(kind="clickhouse", endpoints=endpoints, cluster="c"))
    assert destination._clean_up() == {"partitions rewritten": len(endpoints)}
    expected = f"OPTIMIZE TABLE {where} ID '7' FINAL CLEANUP"
    assert server.rewritten == [(endpoint, 7200, expected) for endpoint in endpoints]


@pytest.mark.parametrize(
    ("mode", "deletes", "engine"),
    [
        ("upsert_delete", False, "ReplacingMergeTree"),
        ("upsert", True, "ReplacingMergeTree"),
        ("upsert_delete", True, "Distributed"),
    ],
)
def test_other_tables_are_left_to_the_merges_of_the_server(
    mode: str, deletes: bool, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch, engine)
    opened(mode, ClickHouseConnection(kind="clickhouse", endpoints=["h:1"]), deletes)._clean_up()
    assert server.asked == []


@pytest.mark.parametrize(
    ("owner", "batch", "seconds", "deletes_go"),
    [("", 0, 0, True), ("replay", 0, 60, False), ("dead replay", 0, 7200, True), ("dead run", 5, 7200, False)],
)
def test_deletes_stay_while_a_run_may_be_at_work(
    owner: str, batch: int, seconds: int, deletes_go: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay is no batch, and holds the lease all the same."""
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    server = Server(monkeypatch, owner=owner, batch=batch, changed_at=since)
    opened("upsert_delete", ClickHouseConnection(kind="clickhouse", endpoints=["h:1"]))._clean_up()
    assert bool(server.rewritten) is deletes_go
    assert (server.lease["owner"] == "") is deletes_go, "nobody is stopped"


def opened(mode: str, connection: ClickHouseConnection, deletes: bool = True) -> ClickHouseDestination:
    upkeep = {"time_limit_seconds": 7200, "clean_up": {"deletes": deletes}}
    spec = specs.spec(specs.table("clickhouse", mode, "d.t"), key="id", maintenance=upkeep, columns=specs.ID)
    return ClickHouseDestination("p", spec, spec.tables[0], connection)  # type: ignore[arg-type]

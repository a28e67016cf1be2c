"""What upkeep sends to which endpoint, and how long it waits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.destinations.clickhouse.destination import ClickHouseDestination
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection
from tests.kit import specs


@pytest.mark.parametrize(
    ("endpoints", "where"), [(["h:1"], "`d`.`t` ON CLUSTER `c` FINAL"), (["h:1", "h:2"], "`d`.`t` FINAL")]
)
def test_each_server_is_asked_once_and_given_time(
    endpoints: list[str], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, str]] = []

    def execute(server: ClickHouseServer, sql: str, *_: object, **__: object) -> int:
        asked.append((server.endpoint, server.connection.statement_timeout_seconds, " ".join(sql.split())))
        return 0

    monkeypatch.setattr(ClickHouseServer, "execute", execute)
    destination = opened("upsert", ClickHouseConnection(kind="clickhouse", endpoints=endpoints, cluster="c"))
    assert destination._clean_up() == {"endpoints": len(endpoints)}
    assert asked == [(endpoint, 7200, f"OPTIMIZE TABLE {where}") for endpoint in endpoints]


@pytest.mark.parametrize(
    ("owner", "batch", "seconds", "deletes_go"),
    [("", 0, 0, True), ("replay", 0, 60, False), ("dead replay", 0, 7200, True), ("dead run", 5, 7200, False)],
)
def test_deletes_stay_while_a_run_may_be_at_work(
    owner: str, batch: int, seconds: int, deletes_go: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay is no batch, and holds the lease all the same."""
    asked = list[str]()
    lease: dict[str, Any] = {
        "name": "p/d.t/1", "change": "c", "epoch": 3, "owner": owner, "run_id": "r", "first": 0, "last": 0,
        "topic_id": "", "batch": batch, "commit_id": "", "chunk_rows": 0, "state": "", "endpoints": ["h:1"],
        "phase": "", "table_id": "", "changed_at": datetime.now(UTC) - timedelta(seconds=seconds),
    }  # fmt: skip

    def execute(_: object, sql: str, parameters: Mapping[str, object] | None = None, settings: object = None) -> int:
        del settings
        asked.append(sql)
        lease.update({name: value for name, value in (parameters or {}).items() if name in lease})
        return 1

    monkeypatch.setattr(ClickHouseServer, "execute", execute)
    monkeypatch.setattr(ClickHouseServer, "rows", lambda *_: [dict(lease)])
    opened("upsert_delete", ClickHouseConnection(kind="clickhouse", endpoints=["h:1"]))._clean_up()
    assert any("CLEANUP" in sql for sql in asked) is deletes_go
    assert any("FINAL" in sql for sql in asked)
    assert (lease["owner"] == "") is deletes_go, "nobody is stopped"


def opened(mode: str, connection: ClickHouseConnection) -> ClickHouseDestination:
    upkeep = {"time_limit_seconds": 7200, "clean_up": {"deletes": True}}
    spec = specs.spec(specs.table("clickhouse", mode, "d.t"), key="id", maintenance=upkeep, columns=specs.ID)
    return ClickHouseDestination("p", spec, spec.tables[0], "clickhouse", connection)  # type: ignore[arg-type]

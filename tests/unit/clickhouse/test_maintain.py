"""What upkeep sends to which endpoint, and how long it waits."""

from __future__ import annotations

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
    spec = specs.spec(
        specs.table("clickhouse", "upsert", "d.t"), key="id", maintenance={"time_limit_seconds": 7200}, columns=specs.ID
    )
    connection = ClickHouseConnection(kind="clickhouse", endpoints=endpoints, cluster="c")
    destination = ClickHouseDestination("p", spec, spec.tables[0], "clickhouse", connection)  # type: ignore[arg-type]
    assert destination._clean_up() == {"endpoints": len(endpoints)}
    assert asked == [(endpoint, 7200, f"OPTIMIZE TABLE {where}") for endpoint in endpoints]

"""Outdated dead letters of a side table, which may be replicated."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.connections_file import load_connections
from jobs.destinations.clickhouse import side_table
from jobs.destinations.clickhouse.side_table import ClickHouseSideTable
from resources.errors import Unavailable
from tests.kit.clickhouse import servers


@pytest.fixture
def make(clickhouse: Path) -> Iterator[Callable[[str], ClickHouseSideTable]]:
    (server,) = servers(load_connections(clickhouse / "connections.yaml"))
    name = f"side_{uuid.uuid4().hex[:8]}"

    def side(engine: str) -> ClickHouseSideTable:
        server.execute(
            f"CREATE TABLE default.{name} (topic String, partition Int32, offset Int64, batch Int64, attempt String, "
            f"key String) ENGINE = {engine.format(name)} ORDER BY (topic, partition, offset)"
        )
        return ClickHouseSideTable(server, ("default", name), "clickhouse a.b")

    yield side
    server.execute(f"DROP TABLE default.{name} SYNC")


@pytest.mark.parametrize(("newest_by", "left"), [(None, [4, 5, 6]), ("new", [2, 4, 5, 6])])
def test_what_was_judged_again_is_forgotten(
    make: Callable[[str], ClickHouseSideTable], newest_by: str | None, left: list[int]
) -> None:
    """Key a is fine now. Of key b the newest change was refused again: its older one was not judged."""
    side = make("MergeTree")
    dead_letters = [
        (1, "old", "a"),
        (2, "old", "b"),
        (3, "old", "b"),
        (3, "new", "b"),
        (4, "old", "c"),
        (5, "older", "a"),
    ]
    values = ", ".join(f"('t', 0, {n}, 1, '{attempt}', '{key}')" for n, attempt, key in dead_letters)
    side.server.execute(f"INSERT INTO {side.name} VALUES {values}, ('t', 0, 6, 1, 'new', 'd')")
    side.forget_places([f"1/t-0@{n}" for n in (1, 2, 3, 5, 9)], ["old"], newest_by)
    found = side.server.rows(f"SELECT offset, attempt FROM {side.name} ORDER BY offset")
    assert [row["offset"] for row in found if row["offset"] != 3] == left
    assert [row["attempt"] for row in found if row["offset"] == 3] == ["new"]
    side.forget(["older"], 1, 1)
    assert 5 not in [row["offset"] for row in side.server.rows(f"SELECT offset FROM {side.name}")]


def test_replicated_table_takes_the_statement(
    make: Callable[[str], ClickHouseSideTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses one that looks into other rows (code 36). This server only reads replicated tables: aborted (236)."""
    side = make("ReplicatedMergeTree('/tests/{}', 'r1')")
    monkeypatch.setattr(ClickHouseSideTable, "rows", lambda *_, **__: [{"place": "1/t-0@1"}])
    monkeypatch.setattr(side_table, "retried", lambda work: work())
    with pytest.raises(Unavailable, match="code 236"):
        side.forget_places(["1/t-0@1"], ["old"], "new")

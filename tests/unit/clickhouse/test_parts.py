"""A table over several endpoints, each of them merged by itself: which one takes records that were read again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from jobs.batch import CommittedState, MergeCounts
from jobs.destinations.clickhouse import destination as module
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.clickhouse.insert_task import InsertCounts
from jobs.destinations.clickhouse.shard import Shard
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection
from resources.errors import Unavailable
from tests.kit import specs
from tests.kit.batches import committed, landed

CONTEXT: Any = None
DOWN = -1


def whole(mode: str) -> ClickHouseDestination:
    spec = specs.spec(specs.table("clickhouse", mode, "d.t"), key="id", columns=specs.ID)
    connection = ClickHouseConnection(kind="clickhouse", endpoints=["h:1", "h:2", "h:3"])
    return ClickHouseDestination("p", spec, spec.tables[0], connection)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "others", "revises", "taken"),
    [
        pytest.param("append", [8, 9], 3, True, id="all have what is before"),
        pytest.param("append", [8, 7], 3, False, id="one is behind"),
        pytest.param("append", [8, 0], 3, False, id="one has nothing"),
        pytest.param("append", [8, DOWN], 3, False, id="one does not answer"),
        pytest.param("append", [0, DOWN], None, True, id="records that are read for the first time"),
        pytest.param("upsert", [0, DOWN], 3, True, id="a key is on one endpoint, whatever is read"),
    ],
)
def test_endpoint_takes_a_revision_once_all_have_the_batches_before_it(
    mode: str, others: list[int], revises: int | None, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are looked for on all of them. None has to wait: after its parts the whole table is merged."""
    states = dict(enumerate([8, *others], 1))

    def state(shard: Shard) -> CommittedState | None:
        number = states[shard.number]
        if number == DOWN:
            raise Unavailable("down", where=shard.where)
        return committed(number) if number else None

    monkeypatch.setattr(Shard, "committed", state)
    monkeypatch.setattr(module, "merge", lambda *_: InsertCounts(rows=5))
    table, batches = whole(mode), [landed(9, revises=revises)]
    merged = table.parts()[0].merge(CONTEXT, committed(8), batches)
    assert (merged and merged.counts) == (MergeCounts(changes=18, inserted=5) if taken else None)
    assert table.merge(CONTEXT, committed(8), batches)


@pytest.mark.parametrize("down", [[], ["h:1"], ["h:2", "h:3"], ["h:1", "h:2"], ["h:1", "h:2", "h:3"]], ids=",".join)
def test_one_endpoint_that_answers_says_which_types_the_table_takes(
    down: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else records would decide the type of a column that the table has, for good."""

    def describe(server: ClickHouseServer, _: object) -> Any:
        if server.endpoint in down:
            raise Unavailable("down", where=server.where)
        return SimpleNamespace(types={"code": "Nullable(String)"})

    monkeypatch.setattr("jobs.destinations.clickhouse.present_table.describe", describe)
    if len(down) == 3:
        with pytest.raises(Unavailable):
            whole("append").takes(["code"])
    else:
        assert whole("append").takes(["code"])["code"].type == pa.string()

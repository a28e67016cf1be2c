"""A table over several endpoints, each of them merged by itself: which one takes records that were read again."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.batch import CommittedState, MergeCounts
from jobs.destinations.clickhouse import destination as module
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.clickhouse.insert_task import InsertCounts
from jobs.destinations.clickhouse.shard import Shard
from resources.connections import ClickHouseConnection
from resources.errors import Unavailable
from tests.kit import specs
from tests.kit.batches import committed, landed

CONTEXT: Any = None
DOWN = -1


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
    spec = specs.spec(specs.table("clickhouse", mode, "d.t"), key="id", columns=specs.ID)
    connection = ClickHouseConnection(kind="clickhouse", endpoints=["h:1", "h:2", "h:3"])
    whole = ClickHouseDestination("p", spec, spec.tables[0], connection)  # type: ignore[arg-type]
    batches = [landed(9, revises=revises)]
    merged = whole.parts()[0].merge(CONTEXT, committed(8), batches)
    assert (merged and merged.counts) == (MergeCounts(changes=18, inserted=5) if taken else None)
    assert whole.merge(CONTEXT, committed(8), batches)

"""What the removal of landed batches does to an intermediate table in a catalog."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from jobs.batch import Counts, LandedBatch
from jobs.dead_letters.open_count import keep_count, open_count
from jobs.iceberg.append import Append
from jobs.landing.intermediate import IntermediateTable
from jobs.landing.publish import publish_batch
from jobs.maintenance import retention
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.maintenance.retention import retire
from jobs.spec.maintenance import Landed
from jobs.spec.pipeline import PipelineSpec
from jobs.verify.stale_keys import stale_keys
from jobs.watermark import Watermark
from resources.iceberg import IcebergCatalog
from tests.kit import specs
from tests.kit.batches import batch, committed
from tests.kit.interrupting import dying_at


def _landed(lake: IcebergCatalog, spec: PipelineSpec, *counts: Counts) -> tuple[IntermediateTable, MaintainedTable]:
    place = IntermediateTable("p", spec, lake)
    place.prepare()
    for number, of_batch in enumerate(counts, start=1):
        append = Append(lake, place.identifier, "p", place.committed())
        publish_batch(append, LandedBatch(batch(number), of_batch, Watermark(), 0), {})
    table = MaintainedTable("p", lake, place.identifier, "main", merged=False, sort_by=(), attempt_seconds=1)
    return place, table


@pytest.mark.parametrize("unsent", [2, None])
def test_dead_letters_that_are_still_to_be_sent_outlive_their_time(
    unsent: int | None, lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their topic has them from here: the position would move past their batch without them."""
    place, maintained = _landed(lake, specs.spec(dead_letters={"topic": "dead"}), *[Counts(quarantined=1)] * 3)
    pipeline: Any = SimpleNamespace(name="p", spec=place.spec, intermediate=place, destinations=list)
    deleted = list[tuple[bool, int | None]]()

    def delete(_: object, __: object, ___: object, dead_letters: bool = False, **more: Any) -> int:
        deleted.append((dead_letters, more.get("unsent")))
        return 0

    monkeypatch.setattr(retention, "DeadLetterTopic", lambda *_: SimpleNamespace(first_unsent=lambda: unsent))
    monkeypatch.setattr(retention, "_delete", delete)
    monkeypatch.setattr(retention, "_count_dead_letters", lambda *_: None)
    monkeypatch.setattr(retention, "expire_these", lambda *_: {})
    retire(Mock(), pipeline, maintained, Landed(keep_days=1, dead_letters_keep_days=1))
    assert deleted == [(False, None), (True, unsent)]


def test_removed_batches_take_no_open_dead_letter_along(lake: IcebergCatalog) -> None:
    """Batch 2 has recovered the dead letter of batch 1, batch 3 has one that is open; two are older than all of them.

    The number is right from the removal on, also if the run dies before the dead letters are counted.
    """
    counts = Counts(quarantined=1), Counts(recovered=1), Counts(quarantined=1)
    place, maintained = _landed(lake, specs.spec(), *counts)
    keep_count(place, 3)
    merged = SimpleNamespace(committed=lambda: committed(1), table=place.spec.tables[0])
    pipeline: Any = SimpleNamespace(name="p", spec=place.spec, intermediate=place, destinations=lambda: [merged])
    with dying_at("maintenance.forgotten"):
        retire(Mock(), pipeline, maintained, Landed(keep_days=1))
    assert [b.number for b in place.landed().batches] == [2, 3]
    assert open_count(place) == 3


def test_a_key_stays_stale_when_the_batch_of_its_dead_letter_is_removed(lake: IcebergCatalog) -> None:
    """Its place is kept as long as it has no later change, since what was landed after it is removed too."""
    spec = specs.spec(specs.table(mode="upsert"), key=specs.ID)
    place, maintained = _landed(lake, spec, Counts(quarantined=1), *[Counts()] * 4)
    (table,), reached = spec.tables, [2]
    upserts: Any = SimpleNamespace(
        name="iceberg n.t", table=table, committed=lambda: committed(reached[0]), refused=lambda: {}
    )
    pipeline: Any = SimpleNamespace(
        name="p", spec=spec, intermediate=place, destinations=lambda: [upserts], resolve=lambda: None
    )
    # A dead letter, and a good row of another key.
    spark, asked = MagicMock(), list[str]()
    found: list[dict[str, int]] = [{"batchNumber": 1, "i": 7}]

    def sql(text: str, args: dict[str, object]) -> object:
        asked.append(text.format(**args))
        return SimpleNamespace(collect=lambda: found, first=lambda: {"keys": len(found)})

    spark.sql = sql

    def removed() -> list[int]:
        with dying_at("maintenance.forgotten"):
            retire(spark, pipeline, maintained, Landed(keep_days=1))
        return [one.number for one in place.landed().batches]

    def stale() -> int:
        return stale_keys(pipeline, upserts, committed(5), place.landed().batches, lambda: spark)

    assert removed() == [3, 4, 5]
    assert "< 3\nLIMIT" in asked[-1]
    assert stale() == 1
    assert "(`batchNumber` = 1 AND `i` = 7)" in asked[-1]
    # The next removal looks at it again: a later change has come.
    reached[0], found[:] = 3, []
    assert removed() == [4, 5]
    assert "(`batchNumber` = 1 AND `i` = 7)" in asked[-1]
    asked.clear()
    assert (stale(), asked) == (0, [])
    assert open_count(place) == 1

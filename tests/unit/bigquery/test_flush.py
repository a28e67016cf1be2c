"""When a flush is due, and how its range is read back from a job's labels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.batch import Counts, LandedBatch
from jobs.destinations.bigquery.flush import Flush, adopted, is_due
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.offsets import OffsetRange
from resources.errors import LineageBroken
from tests.kit import specs
from tests.kit.batches import P0
from tests.kit.batches import landed as landed_batch


def landed(number: int, offsets: int, planned_at: int = 0, rows: int | None = None) -> LandedBatch:
    made = landed_batch(number, ranges={P0: OffsetRange(0, offsets)}, planned_at=planned_at)
    return replace(made, counts=Counts(landed=offsets if rows is None else rows))


def table(**options: object) -> BigQueryTable:
    return BigQueryTable.model_validate(specs.table("bigquery") | options)


@pytest.mark.parametrize(
    ("interval", "threshold", "age_ms", "rows", "due"),
    [
        (0, None, 0, 0, True),
        (0, None, -5000, 0, True),
        (60, None, 59_999, 10**9, False),
        (60, None, 60_000, 0, True),
        (None, 100, 10**9, 99, False),
        (None, 100, 0, 100, True),
        (60, 100, 59_999, 99, False),
        (60, 100, 0, 100, True),
        (60, 100, 60_000, 0, True),
    ],
)
def test_due(interval: int | None, threshold: int | None, age_ms: int, rows: int, due: bool) -> None:
    options = {"merge_interval_seconds": interval, "merge_records_threshold": threshold}
    batches = [landed(1, 10, planned_at=1000, rows=rows), landed(2, 10, planned_at=1000 + age_ms, rows=0)]
    assert is_due(table(**options), batches, 1000 + age_ms) is due


def test_flush_is_read_from_the_labels_of_its_job() -> None:
    batches = [landed(n, 10) for n in range(3, 7)]
    flush = Flush(tuple(batches[:3]))
    assert adopted(flush.labels("load", "run-1"), batches, "test") == flush


@pytest.mark.parametrize("known", [[4, 5, 6], [3, 4], []])
def test_flush_of_batches_that_are_gone(known: list[int]) -> None:
    labels = Flush(tuple(landed(n, 10) for n in (3, 4, 5))).labels("merge", "run")
    with pytest.raises(LineageBroken, match="not landed any more"):
        adopted(labels, [landed(n, 10) for n in known], "test")


def test_labels_are_ones_that_bigquery_takes() -> None:
    flush = Flush((landed(1, 1),))
    labels = flush.labels("load", "Run/With UPPER and " + "x" * 100)
    for name, value in labels.items():
        assert set(name + value) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")
        assert len(name) <= 63
        assert len(value) <= 63

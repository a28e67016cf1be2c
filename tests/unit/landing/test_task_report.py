"""What tasks report is summed up; counts that do not add up, or are not all of the batch, stop it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.iceberg.new_files import NewFile
from jobs.iceberg.statistics import ColumnStatistics
from jobs.landing.task_report import RecordOutcomes, RecordsRead, TaskReport, check, sum_up
from jobs.offsets import OffsetRange, TopicPartition
from resources.errors import InvariantBroken
from tests.kit.batches import batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RANGES = {T0: OffsetRange(10, 30), T1: OffsetRange(0, 5)}


def report(tp: TopicPartition, start: int, end: int, newest: int = 0) -> TaskReport:
    file = NewFile(str(start), 0, 0, (), ColumnStatistics(), ())
    return TaskReport({tp: RecordsRead(end - start, newest, OffsetRange(start, end))}, files=(file,))


def test_outcome_counts_each_kind_on_its_own() -> None:
    op = pa.array(["upsert", "filtered", None, "upsert"])
    bad = pa.array([False, False, True, False])
    assert RecordOutcomes.of(op, pa.array([True, False, False, True]), bad) == RecordOutcomes(2, 1, 1)
    assert RecordOutcomes.of(op[:0], bad[:0], bad[:0]) == RecordOutcomes()


def test_sum_of_all_tasks() -> None:
    reports = [
        report(T0, 10, 20, 7),
        report(T0, 22, 30, 5),
        report(T1, 0, 5),
        TaskReport(outcomes=RecordOutcomes(20, 2, 1)),
    ]
    found = sum_up(reports, RANGES, "n.t")
    assert (found.records, found.newest) == (23, {T0: 7, T1: 0})
    assert found.outcomes == RecordOutcomes(20, 2, 1)
    assert [file.path for file in found.files] == ["10", "22", "0"]


@pytest.mark.parametrize(
    "reports",
    [
        pytest.param([report(T0, 10, 20), report(T0, 10, 20)], id="one task counts twice"),
        pytest.param([report(T0, 10, 20), report(T0, 19, 30)], id="two tasks overlap"),
        pytest.param([report(T0, 9, 20)], id="before the batch"),
        pytest.param([report(T0, 10, 31)], id="after the batch"),
        pytest.param([report(TopicPartition("u", 0), 0, 1)], id="another topic"),
    ],
)
def test_offsets_that_are_not_the_batchs_once_are_refused(reports: list[TaskReport]) -> None:
    with pytest.raises(InvariantBroken, match="nothing was published"):
        sum_up(reports, RANGES, "n.t")


def of_task(read: int, landed: int, quarantined: int, filtered: int) -> TaskReport:
    return TaskReport(
        {T0: RecordsRead(read, 0, OffsetRange(0, read))}, outcomes=RecordOutcomes(landed, quarantined, filtered)
    )


def test_account_that_adds_up_with_gaps_apart() -> None:
    counts = check(batch(1), 20, "n.t", of_task(17, 12, 3, 2), added_rows=15)
    assert (counts.read, counts.landed, counts.quarantined, counts.filtered, counts.gaps) == (17, 12, 3, 2, 3)


@pytest.mark.parametrize(
    ("numbers", "added_rows"),
    [
        pytest.param((17, 12, 3, 1), 15, id="a record vanished, though a gap would cover it"),
        pytest.param((17, 13, 3, 2), 16, id="a record came twice"),
        pytest.param((21, 21, 0, 0), 21, id="more records than offsets"),
        pytest.param((17, 12, 3, 2), 14, id="the files lack a row"),
        pytest.param((17, 12, 3, 2), 17, id="the files hold what was filtered"),
    ],
)
def test_account_that_does_not_add_up_is_refused(numbers: tuple[int, int, int, int], added_rows: int) -> None:
    with pytest.raises(InvariantBroken, match="nothing was published") as caught:
        check(batch(1), 20, "n.t", of_task(*numbers), added_rows)
    assert caught.value.where == "n.t"

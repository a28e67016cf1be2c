"""Counts that do not add up stop a batch before it is published."""

from __future__ import annotations

import pytest

from jobs.landing.accounting import check
from jobs.landing.task_report import Outcome, RecordsRead, TaskReport
from jobs.offsets import OffsetRange, TopicPartition
from resources.errors import InvariantBroken
from tests.kit.batches import batch


def told(read: int, landed: int, quarantined: int, filtered: int) -> TaskReport:
    tp = TopicPartition("t", 0)
    return TaskReport({tp: RecordsRead(read, 0, OffsetRange(0, read))}, outcome=Outcome(landed, quarantined, filtered))


def test_account_that_adds_up_with_gaps_apart() -> None:
    counts = check(batch(1), 20, "n.t", told(17, 12, 3, 2), added_rows=15)
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
        check(batch(1), 20, "n.t", told(*numbers), added_rows)
    assert caught.value.where == "n.t"

"""Which batches are untold: for every state that a crash, a rollback, a silence or a fresh start can leave."""

from __future__ import annotations

import pytest

from jobs.batch import Batch, CommittedState, Counts, LandedBatch
from jobs.events.pending import Said, newest_said, unsaid
from jobs.offsets import OffsetRange, TopicPartition
from jobs.watermark import Watermark

DAY = 24 * 3600 * 1000
NOW = 1_800_000_000_000
TP = TopicPartition("t", 0)


def landed(number: int, age_days: float = 0, life: str = "a") -> LandedBatch:
    batch = Batch(
        pipeline="p",
        number=number,
        commit_id=f"{life}{number}",
        previous_commit_id=f"{life}{number - 1}" if number > 1 else None,
        ranges={TP: OffsetRange(10 * (number - 1), 10 * number)},
        topic_ids={"t": "x"},
        planned_at=int(NOW - age_days * DAY),
        spec_hash="h",
    )
    return LandedBatch(batch, Counts(), Watermark(), snapshot_id=number)


def state(number: int, life: str = "a") -> CommittedState:
    return CommittedState.after(landed(number, life=life))


def said(number: int, life: str = "a") -> Said:
    return Said(number, f"{life}{number}")


def batches(*numbers: int, age_days: float = 0, life: str = "a") -> list[LandedBatch]:
    return [landed(n, age_days, life) for n in numbers]


CASES = {
    "everything was told": (said(3), batches(1, 2, 3), state(3), [], []),
    "the last one was not": (said(2), batches(1, 2, 3), state(3), [], [3]),
    "several were not": (said(1), batches(1, 2, 3), state(3), [], [2, 3]),
    "landed ahead of the table": (said(1), batches(1, 2, 3, 4), state(2), [], [2]),
    "a table that was rolled back": (said(3), batches(1, 2, 3), state(1), [], []),
    "and merged again": (said(3), batches(1, 2, 3, 4), state(4), [], [4]),
    "a new pipeline": (None, batches(1, 2, 3), state(3), batches(1, 2, 3), [1, 2, 3]),
    "a new pipeline whose first run died": (None, batches(1, 2, 3), state(3), [], [1, 2, 3]),
    "Kafka has forgotten": (None, batches(1, 2, age_days=9) + batches(3), state(3), [], [3]),
    "forgotten, nothing new": (None, batches(1, 2, 3, age_days=9), state(3), [], [3]),
    "forgotten while the table was down": (
        None,
        batches(1, 2, 3, age_days=9),
        state(3),
        batches(2, 3, age_days=9),
        [2, 3],
    ),
    "retention has cut the landed batches": (said(2), batches(5, 6), state(6), [], [5, 6]),
    "nothing landed is known any more": (said(2), [], state(6), [], [6]),
    "told, and cut": (said(6), [], state(6), [], []),
    "all tables dropped, begun again": (said(50), batches(1, 2, life="b"), state(2, "b"), [], [1, 2]),
    "begun again, and as far": (said(2), batches(1, 2, life="b"), state(2, "b"), [], [1, 2]),
}


@pytest.mark.parametrize(("note", "known", "now", "merged", "expected"), CASES.values(), ids=CASES)
def test_untold_batches(
    note: Said | None, known: list[LandedBatch], now: CommittedState, merged: list[LandedBatch], expected: list[int]
) -> None:
    found = unsaid(note, known, now, NOW, merged)
    assert [s.batch_number for s in found] == expected
    assert not found or found[-1] is now


def test_a_note_survives_and_others_are_passed_over() -> None:
    notes = [said(3).to_note(), "", "somebody's own", "[]", '{"batch": 1}', said(12).to_note()]
    assert newest_said(notes) == said(12)
    assert newest_said(["", "7"]) is None

"""Whose events are pending: for every state that a crash, a rollback, an outage or a fresh start can leave."""

from __future__ import annotations

import pytest

from jobs.batch import CommittedState, LandedBatch
from jobs.events.pending import PublishedThrough, published_through, unpublished
from tests.kit.batches import committed, landed

DAY = 24 * 3600 * 1000
NOW = 1_800_000_000_000


def state(number: int, life: str = "a") -> CommittedState:
    return committed(number, commit_id=f"{life}{number}")


def published(number: int, life: str = "a") -> PublishedThrough:
    return PublishedThrough(number, f"{life}{number}")


def batches(*numbers: int, age_days: float = 0, life: str = "a") -> list[LandedBatch]:
    return [landed(n, commit_id=f"{life}{n}", planned_at=int(NOW - age_days * DAY)) for n in numbers]


OLD = batches(1, 2, 3, age_days=9)
CASES = {
    "everything was published": (published(3), batches(1, 2, 3), state(3), [], []),
    "the last one was not": (published(2), batches(1, 2, 3), state(3), [], [3]),
    "several were not": (published(1), batches(1, 2, 3), state(3), [], [2, 3]),
    "landed ahead of the table": (published(1), batches(1, 2, 3, 4), state(2), [], [2]),
    "a table that was rolled back": (published(3), batches(1, 2, 3), state(1), [], []),
    "and merged again": (published(3), batches(1, 2, 3, 4), state(4), [], [4]),
    "a new pipeline": (None, batches(1, 2, 3), state(3), batches(1, 2, 3), [1, 2, 3]),
    "a new pipeline whose first run died": (None, batches(1, 2, 3), state(3), [], [1, 2, 3]),
    "Kafka has forgotten": (None, batches(1, 2, age_days=9) + batches(3), state(3), [], [3]),
    "forgotten, nothing new": (None, OLD, state(3), [], [3]),
    "forgotten while the table was down": (None, OLD, state(3), OLD[1:], [2, 3]),
    "retention has cut the landed batches": (published(2), batches(5, 6), state(6), [], [5, 6]),
    "nothing landed is known any more": (published(2), [], state(6), [], [6]),
    "published, and cut": (published(6), [], state(6), [], []),
    "all tables dropped, begun again": (published(50), batches(1, 2, life="b"), state(2, "b"), [], [1, 2]),
    "begun again, and as far": (published(2), batches(1, 2, life="b"), state(2, "b"), [], [1, 2]),
}


@pytest.mark.parametrize(("through", "known", "now", "merged", "expected"), CASES.values(), ids=CASES)
def test_pending_batches(
    through: PublishedThrough | None,
    known: list[LandedBatch],
    now: CommittedState,
    merged: list[LandedBatch],
    expected: list[int],
) -> None:
    found = unpublished(through, known, now, NOW, merged)
    assert [s.batch_number for s in found] == expected
    assert not found or found[-1] is now


def test_metadata_of_others_is_passed_over() -> None:
    metadata = [published(3).to_metadata(), "", "somebody's own", "[]", '{"batch": 1}', published(12).to_metadata()]
    assert published_through(metadata) == published(12)
    assert published_through(["", "7"]) is None


def test_what_was_never_published_is_pending_however_old() -> None:
    known, late = batches(1, 2, 3), NOW + 30 * 24 * 3600 * 1000
    assert [s.batch_number for s in unpublished(None, known, state(3), late)] == [3]
    assert [s.batch_number for s in unpublished(None, known, state(3), late, never=True)] == [1, 2, 3]

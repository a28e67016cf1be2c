"""From which landed batch on the keys are read whose newest change a table may lack."""

from __future__ import annotations

import pytest

from jobs.batch import LandedBatch
from jobs.verify.stale_keys import first_missing
from tests.kit.batches import landed


@pytest.mark.parametrize(
    ("with_dead_letters", "refused", "first"),
    [
        ([], [], None),
        ([landed(4), landed(6)], [], 4),
        ([landed(4)], [3, 9], 3),
        # Records of batch 2 and later ones were read again: their dead letters have the numbers of those batches.
        ([landed(4), landed(6, revises=2)], [], 2),
    ],
)
def test_only_batches_from_the_first_missing_change_on_count(
    with_dead_letters: list[LandedBatch], refused: list[int], first: int | None
) -> None:
    assert first_missing(with_dead_letters, refused) == first

"""From which landed batch on the keys are read whose newest change a table may lack."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from jobs.batch import Counts, LandedBatch
from jobs.verify.stale_keys import first_missing, stale_keys
from tests.kit.batches import committed, landed


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


@pytest.mark.parametrize("refused", [3, 9])
def test_a_refused_row_of_a_batch_that_is_not_looked_at_opens_no_session(refused: int) -> None:
    """Retention has removed batch 3, and the table has not got batch 9: no scan could find their rows."""
    batches = [replace(landed(number), counts=Counts()) for number in range(6, 10)]
    destination: Any = SimpleNamespace(
        table=SimpleNamespace(mode="upsert", has_unique_key=True, title="iceberg n.t"), refused=lambda: {refused: 1}
    )
    pipeline, session = Mock(), Mock(side_effect=AssertionError("a session"))
    pipeline.intermediate.pipeline = "p"
    pipeline.intermediate.catalog.require.return_value.properties = {}
    assert stale_keys(pipeline, destination, committed(8), batches, session) == 0

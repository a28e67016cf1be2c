"""Several merges of a table as one."""

from __future__ import annotations

import pytest

from jobs.batch import MergeCounts
from jobs.destinations.merge_context import Merged
from jobs.merged import MergedBatches
from tests.kit.batches import landed


def _merge(number: int, duplicates: int | None) -> MergedBatches:
    counts = MergeCounts(changes=2, inserted=1, updated=1, deleted=0)
    return MergedBatches([landed(number)], None, Merged(counts, str(number), {"write": 0.5}, duplicates))


def test_merges_one_after_the_other_add_up() -> None:
    both = _merge(2, 0).since(_merge(1, 0))
    assert [batch.number for batch in both.batches] == [1, 2]
    assert both.merged == Merged(MergeCounts(changes=4, inserted=2, updated=2, deleted=0), "2", {"write": 1.0}, 0)


@pytest.mark.parametrize(
    ("earlier", "later", "both"), [(0, 0, 0), (3, 0, 3), (0, 2, 2), (3, None, 3), (None, 0, None), (None, None, None)]
)
def test_keys_with_several_rows_that_an_earlier_merge_found_count(
    earlier: int | None, later: int | None, both: int | None
) -> None:
    assert _merge(2, later).since(_merge(1, earlier)).merged.duplicates == both

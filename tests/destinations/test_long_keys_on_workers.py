"""Keys stay on Spark's workers too, where a merge has more of them than one task takes."""

from __future__ import annotations

import pytest

from tests.destinations.conftest import MakeStory
from tests.kit.received import check_no_rows, incompressible, received
from tests.kit.records import Record
from tests.kit.story import Story, Target, on_targets

# More than one task takes: 9 MB of keys.
ROWS = 30_000


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """Rows; then all but the first again: the second is deleted, the others are changed, and one is new."""
    changes = {"key": {"columns": ["name"], "source": "value"}, "op": {"field": "op"}, "order_by": "arrival"}
    story = new_story(changes=changes)
    for shift in (0, 1):
        operations = ["d"] * shift + ["u"] * (ROWS - shift)
        values = enumerate(operations, shift)
        story.produce(
            *(Record(0, n, {"id": n, "name": incompressible(n), "amount": shift, "op": op}) for n, op in values)
        )
        assert [batch.counts.landed for batch in story.land()] == [ROWS]
    return story


@on_targets("upsert_delete", can="rows_on_workers", ways=True)
def test_a_merge_by_long_keys_brings_none_here(target: Target, story: Story) -> None:
    table = story.table(target, **target.kind.bulk)
    table.merge_some(1)
    with received() as merging:
        table.merge()
    check_no_rows(merging)
    rows = table.select("id", "amount")
    assert len(rows) == ROWS
    assert {row["id"]: row["amount"] for row in rows} == {0: 0, **dict.fromkeys(range(2, ROWS + 1), 1)}

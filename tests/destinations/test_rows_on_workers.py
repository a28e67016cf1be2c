"""Rows stay on Spark's workers: what a run sees of them does not grow with their number."""

from __future__ import annotations

import pytest

from tests.destinations.conftest import MakeStory
from tests.kit.received import Received, received
from tests.kit.records import Record
from tests.kit.story import Story, Target, targets

# 300 bytes each, which no compression makes small.
ROWS, MOST_BYTES = 4_000, 64_000


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """One batch of 1.2 MB."""
    story = new_story(partitions=2)
    values = [
        {"id": n, "name": "".join(f"{n * 7919 + k:x}" for k in range(50)), "amount": n * 0.5, "op": "u"}
        for n in range(ROWS)
    ]
    story.tell(*(Record(n % 2, n, value) for n, value in enumerate(values)))
    with received() as landing:
        assert [batch.counts.landed for batch in story.land()] == [ROWS]
    check(landing)
    return story


def check(found: Received) -> None:
    assert 0 < found.bytes_from_spark < MOST_BYTES
    assert found.data_files == []


@pytest.mark.parametrize("target", [t for t in targets("append", "upsert_delete") if t.kind.by_workers], ids=str)
def test_a_merge_and_a_replay_bring_no_rows_here(target: Target, story: Story) -> None:
    table = story.table(target)
    with received() as merging:
        table.merge()
    check(merging)
    table.remove(below=10)
    with received() as replaying:
        assert table.replay(1, 1)
    check(replaying)
    assert len(table.rows()) == ROWS

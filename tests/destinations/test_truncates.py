"""A truncation takes away what is older by its order, whatever comes when, and however the log is cut into batches."""

from __future__ import annotations

import random

import pytest

from jobs.batch import MergeCounts
from tests.destinations.conftest import MakeStory
from tests.kit.records import Record
from tests.kit.story import Story, Target, on_targets
from tests.kit.truncations import CHANGES, COLUMNS, VALUE, change, expected, truncation


def chapters() -> list[list[Record]]:
    """Changes that come late or early by up to 40; truncations among them, one that comes after a larger one."""
    dice = random.Random(7)
    late = sorted((lsn + dice.randrange(40), lsn) for lsn in range(1, 150))
    log = [change(dice, lsn) for _, lsn in late]
    return [
        log[:40],
        [*log[40:60], truncation(0, 45), *log[60:70]],
        log[70:100],
        [truncation(1, 90), *log[100:120], truncation(0, 60)],
        log[120:],
    ]


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """Each chapter is a batch; the key comes from the record's key, which a truncation has not."""
    story = new_story(2, columns=COLUMNS, source={"value": VALUE}, changes=CHANGES)
    for chapter in chapters():
        story.produce(*chapter)
        (landed,) = story.land()
        truncations = sum(r.key is None for r in chapter)
        assert (landed.counts.quarantined, landed.counts.filtered) == (0, truncations)
    assert [b.watermark.truncated_below for b in story.engine.pipeline.intermediate.landed().batches] == [
        None, 45, 45, 90, 90,
    ]  # fmt: skip
    return story


@on_targets("upsert_delete", "delete", always="iceberg-upsert_delete duckdb-upsert_delete")
def test_truncations_are_applied_however_the_log_is_cut(target: Target, story: Story) -> None:
    table, records = story.table(target), [record for chapter in chapters() for record in chapter]
    for coalesced, first, last in ((1, 1, 1), (2, 2, 2), (1, 1, 3), (1, 1, 5)):
        table.merge_some(coalesced)
        done = table.destination.committed()
        assert done
        reached = sum(map(len, chapters()[: done.batch_number]))
        assert table.rows() == expected(records[:reached], target.mode), done.batch_number
        assert table.replay(first, last)
        assert table.rows() == expected(records[:reached], target.mode), (first, last)
    assert table.verify().wrong == []
    at_once = story.table(target)
    assert at_once.merge()
    assert at_once.rows() == expected(records, target.mode)


@on_targets("upsert_delete", "delete", always="upsert_delete")
def test_rows_that_a_truncation_takes_away_are_counted(target: Target, three_rows: Story) -> None:
    table = three_rows.table(target)
    table.merge_some(1)
    assert len(table.rows()) == 3
    done = table.merge()
    assert done
    assert table.rows() == []
    assert done.merged.counts == MergeCounts(changes=0, deleted=3)


@pytest.fixture(scope="module")
def three_rows(new_story: MakeStory) -> Story:
    """A batch of three rows, and one of nothing but a truncation."""
    story = new_story(1, columns=COLUMNS, source={"value": VALUE}, changes=CHANGES)
    for records in ([put(key) for key in (1, 2, 3)], [truncation(0, 9)]):
        story.produce(*records)
        assert len(story.land()) == 1
    return story


def put(key: int) -> Record:
    row = {"id": key, "name": "n", "amount": 1.0}
    return Record(0, key, {"op": "c", "before": None, "after": row, "source": {"lsn": key}})

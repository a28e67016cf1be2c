"""A replay leaves every table as if it had never been replayed, and brings back what somebody removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, replay_from_kafka
from jobs.replay.landed import replay_window
from resources.errors import ConfigurationError
from tests.destinations.conftest import MakeStory
from tests.kit import model
from tests.kit.records import Record, random_changes
from tests.kit.story import COORDINATES, Story, TableUnderTest, Target, targets


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """Four batches."""
    story = new_story(partitions=2)
    story.tell(*random_changes(5, 160, 15, 2, bad=0.03))
    assert len(story.land(40)) == 4
    return story


@pytest.mark.parametrize("target", targets(), ids=str)
def test_replay_of_landed_batches_changes_nothing_and_mends(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(2)
    table.merge()
    expected, state = model.expected(story.records, target.mode), table.destination.committed()
    done = table.replay(2, 3)
    assert done
    assert [b.number for b in done.batches] == [2, 3]
    assert table.rows() == expected
    table.remove(below=6)
    assert table.rows() == [row for row in expected if row[0] >= 6] != expected
    assert table.replay(1, 4)
    assert table.rows() == expected
    assert table.destination.committed() == state
    assert table.replay(7, 9) is None


def test_window_holds_the_batches_that_were_landed_in_it(story: Story) -> None:
    table = story.table(targets("append")[0])
    table.merge()
    pipeline, destination = table.engine.pipeline, table.destination
    second, third = (
        datetime.fromtimestamp(b.batch.planned_at / 1000, UTC) for b in pipeline.intermediate.landed().batches[1:3]
    )
    done = replay_window(pipeline, destination, second, third)
    assert done
    assert [b.number for b in done.batches] == [2], "from the start on, up to before the end"
    assert done.merged.counts.inserted == 0
    assert replay_window(pipeline, destination, third + timedelta(days=1), third + timedelta(days=2)) is None


@pytest.mark.parametrize("target", targets("append", "delete"), ids=str)
def test_rows_that_cannot_be_told_apart_are_not_replayed(target: Target, story: Story) -> None:
    """A kind either adds the coordinates itself or refuses to replay without them."""
    table = story.table(target, metadata_columns=[])
    if table.destination.table.metadata_columns:
        assert table.destination.table.metadata_columns == COORDINATES
        return
    table.merge()
    with pytest.raises(ConfigurationError, match="_topic, _partition, _offset"):
        table.replay(1, 2)


# ---- from Kafka -----------------------------------------------------------------------------------------------------


def put(key: int, name: str, op: str = "u") -> Record:
    return Record(key % 2, key, {"id": key, "name": name, "amount": float(key), "op": op})


# Before the pipeline: 1 to 4. Of these 2 is changed and 3 deleted by what the pipeline reads; 5 is its own.
BEFORE = [
    put(1, "old"),
    put(2, "old"),
    put(3, "old"),
    put(4, "old"),
    put(4, "older", "d"),
    put(4, "again"),
    put(6, "x"),
]
AFTER = [put(2, "new"), put(3, "", "d"), put(5, "new"), Record(0, 6, None)]


@pytest.fixture(scope="module")
def late(new_story: MakeStory) -> Story:
    """A pipeline that began in the middle of its topic."""
    story = new_story(partitions=2, source={"start": "latest"})
    story.tell(*BEFORE)
    story.land()
    story.tell(*AFTER)
    story.land()
    return story


def from_kafka(table: TableUnderTest, offset: int) -> None:
    pipeline = table.engine.pipeline
    start = {TopicPartition(table.engine.flow.topic, partition): offset for partition in (0, 1)}
    assert replay_from_kafka(pipeline, pipeline.destinations()[0], from_offsets(start))


@pytest.mark.parametrize("target", targets(), ids=str)
def test_records_from_before_the_start_are_read_from_kafka(target: Target, late: Story) -> None:
    table = late.table(target)
    table.merge()
    state = table.destination.committed()
    assert table.rows() == model.expected(AFTER, target.mode)
    from_kafka(table, 0)
    expected = model.expected([*BEFORE, *AFTER], target.mode)
    assert table.rows() == expected
    assert table.replay(1, 9), "of landed batches changes nothing"
    assert table.rows() == expected
    assert table.destination.committed() == state

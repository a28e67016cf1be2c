"""Offsets that a person moves, and topics that somebody deletes and makes again."""

from __future__ import annotations

import pytest

from jobs.offsets import TopicPartition
from resources.errors import ConfigurationError, TopicRecreated
from tests.destinations.conftest import MakeStory
from tests.kit import model
from tests.kit.records import Record, put, random_changes, recreate
from tests.kit.resets import reset_offsets
from tests.kit.story import COORDINATES, Story, Target, on_targets


def move(story: Story, to: int) -> None:
    reset_offsets(story.engine.pipeline, {TopicPartition(story.engine.flow.topic, 0): to})


@pytest.fixture(scope="module")
def reset(new_story: MakeStory) -> Story:
    """Its offsets were set back, so that records were landed twice, then forward, so that some never are."""
    story = new_story()
    story.produce(*random_changes(4, 40, 8, 1, bad=0))
    story.land()
    move(story, 10)
    story.land()
    story.records += story.records[10:]
    skipped: list[Record] = random_changes(5, 10, 8, 1, bad=0)
    story.produce(*skipped)
    move(story, 50)
    del story.records[-len(skipped) :]
    story.produce(*random_changes(6, 20, 8, 1, bad=0))
    story.land()
    return story


@on_targets(always="upsert_delete", shared=True)
def test_offsets_that_were_reset_are_followed(target: Target, reset: Story) -> None:
    table = reset.table(target)
    for coalesced in (1, 2):
        table.merge_some(coalesced)
    table.merge()
    landed = table.engine.pipeline.intermediate.landed().batches
    assert [b.batch.continues is not None for b in landed] == [False, True, False, True, False]
    assert table.rows() == model.expected(reset.records, target.mode)
    assert table.destination.committed() == table.engine.pipeline.intermediate.committed()


@pytest.fixture(scope="module")
def recreated(new_story: MakeStory) -> Story:
    """Two topics of one name, one after the other; records of both have the same offsets."""
    story = new_story()
    story.produce(put(1, "old"), put(2, "old"), put(3, "old"))
    story.land()
    recreate(story.engine.connections, story.engine.flow.topic)
    story.produce(put(4, "new"), put(2, "gone", "d"), put(5, "new"))
    with pytest.raises(TopicRecreated, match="offsets reset"):
        story.land()
    move(story, 0)
    story.land()
    return story


@on_targets(always="append")
@pytest.mark.parametrize("metadata", [[*COORDINATES, "batch"], COORDINATES], ids=["with batch", "without"])
def test_rows_of_a_recreated_topic_are_not_taken_for_those_of_the_old_one(
    metadata: list[str], target: Target, recreated: Story
) -> None:
    """What somebody has deleted comes back by a replay, although a row of the other topic has its offset; or the
    replay is refused, where nothing distinguishes them."""
    table = recreated.table(target, metadata_columns=metadata)
    kind = target.kind
    distinguishable = kind.capabilities.tells_topics_apart and {*kind.distinguishing_columns} <= {*metadata}
    table.merge_some(1)
    table.merge()
    expected = model.expected(recreated.records, target.mode)
    assert table.rows() == expected
    verdict = table.verify()
    compared = "batch" in metadata or target.mode.startswith("upsert")
    assert (verdict.wrong, verdict.compared) == ([], len(expected) if compared else 0)
    table.remove(below=5)
    if target.mode.startswith("upsert") or distinguishable:
        assert table.replay(1, 3)
        assert table.rows() == expected
    else:
        with pytest.raises(ConfigurationError, match="was recreated"):
            table.replay(1, 3)
        assert table.rows() == [row for row in expected if row[0] >= 5]

"""What people do to tables and pipelines by hand: drop, recreate, reset offsets, maintain, and change rows."""

from __future__ import annotations

import pytest

from jobs import offset_reset
from jobs.maintenance.run import maintain_table
from jobs.offsets import TopicPartition
from jobs.verify.reconciliation import reconcile
from resources.errors import ConfigurationError, TableReplaced
from tests.destinations.conftest import MakeStory, every_kind
from tests.kit import model
from tests.kit.kind import KindUnderTest
from tests.kit.records import Record, random_changes
from tests.kit.story import Story, Target, on_targets


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """Three batches."""
    story = new_story(partitions=2)
    story.tell(*random_changes(3, 90, 12, 2, bad=0.03))
    assert len(story.land(30)) == 3
    return story


@every_kind
def test_table_that_was_dropped_is_filled_again_when_its_state_is_gone_too(kind: KindUnderTest, story: Story) -> None:
    table = story.table(Target(kind, "upsert_delete"))
    table.merge_some(2)
    with pytest.raises(ConfigurationError, match="drop the table"):
        table.destination.drop_state()
    table.drop()
    if not kind.state_in_table:
        with pytest.raises(TableReplaced) as caught:
            table.merge()
        assert "batchmerge offsets forget" in caught.value.remedy
        assert table.destination.drop_state()
    assert not table.destination.drop_state(), "nothing is left to forget"
    table.merge()
    assert table.rows() == model.expected(story.records, "upsert_delete")


@every_kind
def test_table_that_somebody_recreated_is_noticed(kind: KindUnderTest, story: Story) -> None:
    table = story.table(Target(kind, "append"))
    table.merge_some(2)
    kind.recreate(story.engine.connections, table.name)
    if not kind.state_in_table:
        with pytest.raises(TableReplaced, match=r"created again|dropped and recreated"):
            table.merge()
        assert table.destination.drop_state()
    table.merge()
    assert table.rows() == model.expected(story.records, "append")


@on_targets(always="append upsert_delete")
def test_verification_is_content_until_rows_are_changed(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge()

    def wrong() -> list[str]:
        pipeline = table.engine.pipeline
        verdict = reconcile(pipeline, pipeline.destinations()[0], 0)
        assert verdict.batch == 3
        assert verdict.rows == verdict.compared == len(table.rows())
        return verdict.wrong

    assert wrong() == []
    expected = model.expected(story.records, target.mode)
    table.remove(below=4)
    kept = [row for row in expected if row[0] >= 4]
    assert wrong() == [f"{len(kept)} rows, landed changes make {len(expected)}"]
    table.plant((999, "theirs", 1.0))
    assert f"{len(kept) + 1} rows, landed changes make {len(expected)}" in (found := wrong())
    if target.mode.startswith("upsert"):
        # Rows of other modes are looked up by their coordinates, which this one does not have.
        assert "1 rows that no landed change explains" in found


@on_targets(always="upsert_delete")
def test_pipeline_goes_on_after_maintenance(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(2)
    before, state = table.rows(), table.destination.committed()
    pipeline = table.engine.edited(
        maintenance={"compaction": {"min_input_files": 2}, "snapshots": {"keep_days": 1e-6, "keep_last": 1}}
    ).pipeline
    done = list(maintain_table(pipeline, pipeline.destinations()[0]))
    assert done or not target.kind.maintained
    assert [str(d) for d in done if d.problem] == []
    assert (table.rows(), table.destination.committed()) == (before, state)
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode)


# ---- offsets --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reset(new_story: MakeStory) -> Story:
    """Its offsets were set back, so that records were landed twice, then forward, so that some never are."""
    story = new_story()

    def move(to: int) -> None:
        pipeline = story.engine.pipeline
        known = offset_reset.read_state(pipeline)
        base = known.base()
        targets = {TopicPartition(story.engine.flow.topic, 0): to}
        batch = offset_reset.plan_reset(known, base, targets, (), base.spec_hash)
        offset_reset.commit(pipeline, known, base, batch)

    story.tell(*random_changes(4, 40, 8, 1, bad=0))
    story.land()
    move(10)
    story.land()
    skipped: list[Record] = random_changes(5, 10, 8, 1, bad=0)
    story.tell(*skipped)
    move(50)
    del story.records[-10:]
    story.tell(*random_changes(6, 20, 8, 1, bad=0))
    story.land()
    return story


@on_targets("upsert", "upsert_delete", always="upsert_delete")
def test_offsets_that_were_reset_are_followed(target: Target, reset: Story) -> None:
    table = reset.table(target)
    for coalesced in (1, 2):
        table.merge_some(coalesced)
    table.merge()
    landed = table.engine.pipeline.intermediate.landed().batches
    assert [b.batch.continues is not None for b in landed] == [False, True, False, True, False]
    assert table.rows() == model.expected(reset.records, target.mode)
    assert table.destination.committed() == table.engine.pipeline.intermediate.committed()

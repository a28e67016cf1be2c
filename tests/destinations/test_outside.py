"""What people do to tables by hand: drop, recreate, roll back, lose their state, maintain, and change rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.maintenance.run import maintain_table
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.verify.reconciliation import reconcile
from resources.errors import ConfigurationError, InvariantBroken, TableReplaced
from tests.destinations.conftest import MakeStory
from tests.kit import model
from tests.kit.command import Command
from tests.kit.kinds import KINDS
from tests.kit.records import Record, random_changes
from tests.kit.story import Story, Target, on_targets

CHAPTERS = [random_changes(seed, 20, 12, 2, bad=0.03) for seed in range(5)]


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """A batch each chapter."""
    return new_story(partitions=2).land_each(CHAPTERS)


def records_of(*batches: int) -> list[Record]:
    return [record for number in batches for record in CHAPTERS[number - 1]]


@on_targets(always="upsert_delete")
def test_table_that_was_dropped_is_filled_again_once_its_state_is_forgotten(
    target: Target, story: Story, batchmerge: Command
) -> None:
    table, beside = story.table(target), not target.kind.capabilities.state_in_table

    def forget(*options: str) -> tuple[int, str]:
        return batchmerge(table.engine, "offsets", "forget", "", table.name, *options)

    table.merge_some(2)
    code, output = forget("--yes")
    assert (code, "drop the table" in output) == (2, True), output
    table.drop()
    if beside:
        with pytest.raises(TableReplaced) as caught:
            table.merge()
        assert "batchmerge offsets forget" in caught.value.remedy
    landed = sum(b.counts.landed for b in table.engine.pipeline.intermediate.landed().batches)
    code, output = forget()
    assert (code, f"{landed} changes" in output, "Nothing was changed" in output) == (0, True, True), output
    for there in (beside, False):
        code, output = forget("--yes")
        assert (code, "Done" in output, "nothing to forget" in output) == (0, there, not there), output
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode)


def test_table_is_named_with_its_kind_where_systems_share_its_name(story: Story) -> None:
    tables = [{"kind": kind, "table": "tests.shared", "mode": "append"} for kind in KINDS]
    pipeline = story.edited(tables=tables).engine.pipeline
    with pytest.raises(ConfigurationError, match="more than one table") as caught:
        pipeline.destination("tests.shared")
    for kind in KINDS:
        assert f"{kind} tests.shared" in caught.value.remedy
        assert pipeline.destination(f"{kind} tests.shared").table.kind == kind


@on_targets(always="append")
def test_table_that_somebody_recreated_is_noticed(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(2)
    target.kind.recreate(story.engine.connections, table.name)
    if not target.kind.capabilities.state_in_table:
        with pytest.raises(TableReplaced, match=r"created again|dropped and recreated"):
            table.merge()
        assert table.destination.drop_state()
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode)


@on_targets(cannot="state_in_table", always="clickhouse-append upsert_delete")
def test_table_that_somebody_restored_goes_on(target: Target, story: Story, caplog: pytest.LogCaptureFixture) -> None:
    table = story.table(target)
    table.merge_some(2)
    before = table.rows()
    target.kind.recreate(story.engine.connections, table.name)
    for row in before:
        target.kind.plant(story.engine.connections, table.name, row)
    with caplog.at_level("WARNING", "batchmerge"):
        table.merge_some(1)
    assert "another table than the one with batch 2, but it has rows: it counts as restored" in caplog.text
    caplog.clear()
    table.merge()
    assert "restored" not in caplog.text
    # As sets: ClickHouse takes the second of two planted rows that are equal for the first, sent again.
    assert set(table.rows()) == set(model.expected(story.records, target.mode))


@on_targets(can="rolls_back", always="append upsert")
def test_table_that_was_rolled_back_goes_on_as_its_entry_says(target: Target, story: Story) -> None:
    for choice, merged in (("replay", (1, 2, 3, 4)), ("skip", (1, 4))):
        table = story.table(target)
        for _ in range(3):
            table.merge_some(1)
        target.kind.roll_back(story.engine.connections, table.name, commits=2)
        assert table.rows() == model.expected(records_of(1), target.mode)
        with pytest.raises(TableReplaced, match=r"batch 1\b.* batch 3\b") as caught:
            table.merge()
        assert "on_rollback" in caught.value.remedy
        chosen = table.under(story, on_rollback=choice)
        while (done := chosen.destination.committed()) is None or done.batch_number < 4:
            chosen.merge_some(1)
        assert table.rows() == model.expected(records_of(*merged), target.mode), choice
        table.merge()
        assert table.rows() == model.expected(records_of(*merged, 5), target.mode), "the table is as any other one"


@on_targets(can="rolls_back", always="append upsert_delete")
def test_table_that_was_renamed_goes_on_under_its_new_name(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(2)
    renamed = replace(table, name=f"{table.name}_new")
    target.kind.rename(story.engine.connections, table.name, renamed.name)
    renamed.merge()
    assert renamed.rows() == model.expected(story.records, target.mode)


@on_targets(cannot="state_in_table", always="append clickhouse-upsert_delete")
def test_state_that_was_lost_doubles_nothing(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(2)
    target.kind.lose_state(story.engine.connections, table.destination)
    if target.mode in target.kind.needs_state:
        with pytest.raises(InvariantBroken) as caught:
            table.merge()
        assert "drop the table" in caught.value.remedy
        assert table.rows() == model.expected(records_of(1, 2), target.mode)
        table.drop()
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode)
    assert table.merge() is None


@on_targets(cannot="state_in_table", always="clickhouse-append clickhouse-upsert_delete")
def test_state_that_was_lost_after_records_were_read_again_doubles_nothing(
    target: Target, new_story: MakeStory
) -> None:
    """Such a batch is merged alone, so the table is filled again in several stretches."""
    if target.mode in target.kind.needs_state:
        return
    story = new_story(partitions=2).land_each(CHAPTERS[:2])
    table = story.table(target)
    table.merge()
    pipeline = table.engine.pipeline
    assert reread_from_kafka(pipeline, from_offsets(dict.fromkeys(pipeline.topic_state().partitions, 0)))
    story.land_each(CHAPTERS[2:4])
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode)
    target.kind.lose_state(story.engine.connections, table.destination)
    story.land_each(CHAPTERS[4:])
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode)


@on_targets(always="upsert_delete iceberg-append clickhouse-append duckdb-append")
def test_verification_passes_until_rows_are_changed(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge()

    def wrong() -> list[str]:
        pipeline = table.engine.pipeline
        verdict = reconcile(pipeline, pipeline.destinations()[0], 0)
        assert verdict.batch == len(CHAPTERS)
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


@on_targets(always="upsert_delete", shared=True)
def test_pipeline_goes_on_after_maintenance(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(2)
    before, state = table.rows(), table.destination.committed()
    pipeline = table.engine.edited(
        maintenance={"compaction": {"min_input_files": 2}, "snapshots": {"keep_days": 1e-6, "keep_last": 1}}
    ).pipeline
    done = list(maintain_table(pipeline, pipeline.destinations()[0]))
    assert bool(done) == target.kind.capabilities.upkeep
    assert [str(d) for d in done if d.problem] == []
    assert (table.rows(), table.destination.committed()) == (before, state)
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode)

"""One pipeline writes a table: a second one is refused, and takes it over only when a person says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.resets.take_over import plan_take_over
from resources.errors import CommitFailed, ConfigurationError
from tests.destinations.conftest import MakeStory
from tests.kit import model
from tests.kit.command import Command
from tests.kit.interrupting import dying_at
from tests.kit.records import random_changes
from tests.kit.story import COORDINATES, Story, TableUnderTest, Target, on_targets

CHAPTERS = [random_changes(seed, 20, 12, 2, bad=0.03) for seed in range(3)]


@pytest.fixture
def story(new_story: MakeStory) -> Story:
    """A batch each chapter."""
    return new_story(partitions=2).land_each(CHAPTERS)


def names(table: TableUnderTest) -> str:
    return table.engine.flow.name


@on_targets(always="upsert_delete", shared=True)
def test_second_pipeline_is_refused_before_it_writes_anything(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(2)
    other = table.as_another_pipeline()
    other.story.land()
    for attempt in (lambda: other.destination.prepare(dry_run=True), other.destination.prepare, other.merge):
        with pytest.raises(ConfigurationError) as caught:
            attempt()
        assert f"pipeline {names(table)} writes" in caught.value.what
        assert f"pipeline {names(other)} cannot" in caught.value.what
        assert f"take-over {names(other)} --from {names(table)}" in (caught.value.remedy or "")
    assert table.rows() == model.expected([r for chapter in CHAPTERS[:2] for r in chapter], target.mode)
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode)
    assert table.replay(1, len(CHAPTERS))
    assert table.rows() == model.expected(story.records, target.mode)


@on_targets(always="append")
def test_of_two_pipelines_that_begin_together_one_is_refused(target: Target, story: Story) -> None:
    table = story.table(target)
    other = table.as_another_pipeline()
    other.story.land()
    table.destination.prepare()
    with pytest.raises(ConfigurationError, match="writes this table"):  # noqa: PT012  # at either step
        other.destination.prepare()
        pipeline, late = other.engine.pipeline, other.destination
        context, batches = pipeline.merge_context(late), pipeline.intermediate.landed().batches
        table.merge()
        late.merge(context, None, batches)
    table.merge()
    assert table.rows() == model.expected(story.records, target.mode)


@on_targets(always="iceberg-append clickhouse-append duckdb-append")
def test_renamed_pipeline_goes_on_where_it_ended(target: Target, story: Story, batchmerge: Command) -> None:
    table = story.table(target)
    table.merge()
    sleeping, committed = table.destination, table.destination.committed()
    assert committed
    renamed = table.as_another_pipeline()

    def take_over(*options: str) -> tuple[int, str]:
        return batchmerge(renamed.engine, "offsets", "take-over", "", "--from", names(table), *options)

    code, output = take_over()
    assert (code, "Nothing was changed" in output, f"batch {len(CHAPTERS)}" in output) == (0, True, True), output
    assert table.destination.committed() == committed
    code, output = take_over("--yes")
    assert (code, "Done" in output) == (0, True), output

    story.produce(*random_changes(9, 20, 12, 2))
    landed = story.land()
    with pytest.raises((ConfigurationError, CommitFailed)):
        sleeping.merge(table.engine.pipeline.merge_context(sleeping), committed, landed)
    with pytest.raises(ConfigurationError, match=f"pipeline {names(renamed)} writes"):
        table.merge()
    (first,) = renamed.story.land()
    assert first.number == len(CHAPTERS) + 2, "numbers go on after the batch that took the table over"
    renamed.merge()
    assert table.rows() == model.expected(story.records, target.mode)
    assert renamed.replay(first.number, first.number)
    assert table.rows() == model.expected(story.records, target.mode)
    assert renamed.verify().wrong == []


@on_targets("append", "delete", always="append", shared=True)
def test_taken_over_rows_without_coordinates_are_not_read_again(target: Target, story: Story) -> None:
    """The old pipeline's state names the rows that do not show their records; the new one's has to name them too."""
    table = story.table(target, metadata_columns=[])
    if table.destination.table.metadata_columns:
        return  # a kind that adds them itself
    table.merge()
    renamed = table.as_another_pipeline()
    renamed = renamed.under(renamed.story, metadata_columns=COORDINATES)
    plan_take_over(renamed.engine.pipeline, names(table)).carry_out(renamed.engine.pipeline)
    story.produce(*random_changes(9, 20, 12, 2))
    (landed,) = renamed.story.land()
    renamed.merge()
    assert renamed.replay(landed.number, landed.number)
    from_the_start = from_offsets({TopicPartition(story.engine.flow.topic, partition): 0 for partition in range(2)})
    with pytest.raises(ConfigurationError, match=r"were written without coordinates"):
        reread_from_kafka(renamed.engine.pipeline, from_the_start)
    assert renamed.rows() == model.expected(story.records, target.mode)


@on_targets("upsert", always="iceberg-upsert clickhouse-upsert duckdb-upsert")
def test_take_over_that_died_is_completed(target: Target, story: Story) -> None:
    """Although the new pipeline has run in between, which was refused for this table."""
    table = story.table(target)
    table.merge()
    renamed = table.as_another_pipeline()
    planned = plan_take_over(renamed.engine.pipeline, names(table))
    replace(planned, tables=()).carry_out(renamed.engine.pipeline)
    story.produce(*random_changes(9, 20, 12, 2))
    story.land()
    renamed.story.land()
    again = plan_take_over(renamed.engine.pipeline, names(table))
    assert again.batch is None
    assert again.carry_out(renamed.engine.pipeline) == [renamed.destination.name]
    assert plan_take_over(renamed.engine.pipeline, names(table)).carry_out(renamed.engine.pipeline) == []
    renamed.merge()
    assert table.rows() == model.expected(story.records, target.mode)


# It is refused before any kind is asked to hand its table over.
@on_targets("upsert", always="iceberg-upsert")
def test_take_over_that_would_lose_something_is_refused(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(2)
    renamed = table.as_another_pipeline()
    changed = replace(
        renamed,
        story=renamed.story.edited(
            changes={
                "key": {"columns": ["id", "name"], "source": "value"},
                "order_by": "arrival",
                "op": {"field": "op"},
            }
        ),
    )
    with pytest.raises(ConfigurationError, match="`changes`"):
        plan_take_over(changed.engine.pipeline, names(table))
    renamed.story.land()
    with pytest.raises(ConfigurationError, match="batches of its own"):
        plan_take_over(renamed.engine.pipeline, names(table))
    with pytest.raises(ConfigurationError, match="its own tables"):
        plan_take_over(table.engine.pipeline, names(table))


@on_targets("append", "upsert", always="iceberg-append clickhouse-append duckdb-append")
def test_table_that_moves_after_the_plan_is_not_taken_over(target: Target, story: Story) -> None:
    """By a run of the old pipeline that Dagster does not know here: its rows would come twice."""
    table = story.table(target)
    table.merge_some(2)
    renamed = table.as_another_pipeline()
    planned = plan_take_over(renamed.engine.pipeline, names(table))
    table.merge()
    with pytest.raises(CommitFailed, match=f"{names(table)} has committed batch {len(CHAPTERS)} meanwhile"):
        planned.carry_out(renamed.engine.pipeline)
    for once_more in (True, False):
        planned = plan_take_over(renamed.engine.pipeline, names(table))
        assert (planned.batch is not None) == once_more
        if once_more:
            planned = replace(planned, tables=())
        planned.carry_out(renamed.engine.pipeline)
    story.produce(*random_changes(9, 20, 12, 2))
    renamed.story.land()
    renamed.merge()
    assert table.rows() == model.expected(story.records, target.mode)


@on_targets(can="leases", always="clickhouse-append")
def test_take_over_of_a_half_done_batch_is_refused_before_anything_is_done(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(2)
    with dying_at(target.kind.written):
        table.merge()
    renamed = table.as_another_pipeline()
    with pytest.raises(ConfigurationError, match=f"pipeline {names(table)} is half done"):
        plan_take_over(renamed.engine.pipeline, names(table))
    table.merge()
    plan_take_over(renamed.engine.pipeline, names(table)).carry_out(renamed.engine.pipeline)
    story.produce(*random_changes(9, 20, 12, 2))
    renamed.story.land()
    renamed.merge()
    assert table.rows() == model.expected(story.records, target.mode)


@on_targets("append", "upsert", always="iceberg-append clickhouse-append duckdb-append")
def test_pipeline_that_has_not_run_since_a_take_over_hands_nothing_on(target: Target, story: Story) -> None:
    """Its tables do not say yet where they stand: the third pipeline would read everything once more."""
    table = story.table(target)
    table.merge()
    second = table.as_another_pipeline()
    plan_take_over(second.engine.pipeline, names(table)).carry_out(second.engine.pipeline)
    third = second.as_another_pipeline()
    with pytest.raises(ConfigurationError, match="has not written them since") as caught:
        plan_take_over(third.engine.pipeline, names(second))
    assert f"run pipeline {names(second)} once" in (caught.value.remedy or "")
    second.merge()
    plan_take_over(third.engine.pipeline, names(second)).carry_out(third.engine.pipeline)
    story.produce(*random_changes(9, 20, 12, 2))
    third.story.land()
    third.merge()
    assert table.rows() == model.expected(story.records, target.mode)

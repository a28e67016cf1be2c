"""A refused row has one dead letter as long as it is refused, and none after that, however it is read again."""

from __future__ import annotations

import pytest

from jobs.dead_letters.refused import retry_refused
from jobs.maintenance.run import maintain_landing
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from tests.destinations.conftest import MakeStory
from tests.kit.records import put
from tests.kit.story import Story, TableUnderTest, Target, on_targets


def on_refusing_targets(always: str) -> pytest.MarkDecorator:
    return on_targets("append", "upsert", "upsert_delete", can="refuses", always=always)


def refused(target: Target, new_story: MakeStory, **parts: object) -> TableUnderTest:
    """Key 1 has an older row, key 2 has none; key 3 has a newer one than what is refused."""
    kind, story = target.kind, new_story(columns=target.kind.odd_columns, **parts)
    table = story.table(target)
    story.produce(put(1, "old", odd=None), kind.odd(3))
    story.land()
    story.produce(kind.odd(1), kind.odd(2), put(3, "new", odd=None))
    story.land()
    table.merge()
    assert table.destination.refused() == {1: 1, 2: 2}
    return table


def read_again(table: TableUnderTest) -> None:
    """From Kafka, by the table's file as it is now."""
    pipeline = table.engine.pipeline
    assert reread_from_kafka(pipeline, from_offsets(dict.fromkeys(pipeline.topic_state().partitions, 0)))
    assert table.merge()


def all_fitting(table: TableUnderTest) -> Story:
    """The story with a transform after which everything fits."""
    story, kind = table.story, table.target.kind
    transform = f"select * except (odd), {kind.fitting} as odd from records"
    return story.reading(kind.odd_columns, transform=transform)


def rows(table: TableUnderTest) -> list[tuple[object, ...]]:
    return [row[:2] for row in table.rows()]


def assert_all_is_there(table: TableUnderTest) -> None:
    newest: list[tuple[object, ...]] = [(1, "odd"), (2, "odd"), (3, "new")]
    older: list[tuple[object, ...]] = [(1, "old"), (3, "odd")]
    assert rows(table) == sorted(newest + older if table.target.mode == "append" else newest)
    assert (table.destination.refused(), table.verify().wrong, table.stale()) == ({}, [], 0)


@on_refusing_targets(always="clickhouse-append")
def test_rows_that_are_refused_again_keep_one_dead_letter_until_the_file_is_corrected(
    target: Target, new_story: MakeStory
) -> None:
    table = refused(target, new_story)
    before, appends = rows(table), target.mode == "append"
    # The row of key 3 is not tried again, where a newer change of it is there.
    left = {1: 1, 2: 2} if appends else {2: 2}
    for _ in range(2):
        read_again(table)
        assert (rows(table), table.destination.refused()) == (before, left)
        assert (table.verify().wrong, table.stale()) == ([], 0 if appends else 2)
    assert retry_refused(table.engine.pipeline)[table.destination.name].stay == sum(left.values())
    assert table.destination.refused() == left
    accepting = table.under(table.story, **target.kind.accepting)
    retry_refused(accepting.engine.pipeline)
    assert_all_is_there(accepting)


# Each of these tests reads its records again several times.
@pytest.mark.slow
@on_refusing_targets(always="clickhouse-append")
def test_rows_that_a_corrected_transform_makes_fit_have_no_dead_letter_however_often_they_are_replayed(
    target: Target, new_story: MakeStory
) -> None:
    table = refused(target, new_story)
    table = table.under(all_fitting(table))
    read_again(table)
    assert_all_is_there(table)
    for window in [(1, 1), (1, 3), (3, 3)]:
        assert table.replay(*window)
        assert_all_is_there(table)


@pytest.mark.slow
@on_refusing_targets(always="clickhouse-append")
def test_rows_whose_records_are_left_out_have_no_dead_letter(target: Target, new_story: MakeStory) -> None:
    table = refused(target, new_story)
    before = rows(table)
    story = table.story.reading(target.kind.odd_columns, transform="select * from records where name <> 'odd'")
    table = table.under(story)
    read_again(table)
    accepting = table.under(story, **target.kind.accepting)
    for _ in range(2):
        assert (rows(accepting), accepting.destination.refused(), accepting.verify().wrong) == (before, {}, [])
        assert accepting.replay(1, 3)


@pytest.mark.slow
@on_refusing_targets(always="clickhouse-append")
def test_dead_letters_of_removed_batches_end_when_their_records_are_read_again(
    target: Target, new_story: MakeStory
) -> None:
    eager = {"snapshots": {"keep_days": 1e-6, "keep_last": 1}, "landed": {"keep_days": 1e-6}}
    table = refused(target, new_story, maintenance=eager)
    table.story.produce(put(4, "newest", odd=None), target.kind.odd(5))
    table.story.land()
    table.merge()
    assert [str(done) for done in maintain_landing(table.engine.pipeline) if done.problem] == []
    assert [b.number for b in table.engine.pipeline.intermediate.landed().batches] == [3]
    fitting = table.under(table.story, **target.kind.accepting)
    done = retry_refused(fitting.engine.pipeline)[table.destination.name]
    assert (done.tried, done.stay) == (4, 3), "the others' batches are gone"
    assert "removed by retention" in str(done.problem)
    again = table.under(all_fitting(table))
    read_again(again)
    assert (again.destination.refused(), again.verify().wrong, again.stale()) == ({}, [], 0)

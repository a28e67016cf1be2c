"""A row that a table refuses has one letter as long as it is refused, and none after that, however it is read again."""

from __future__ import annotations

import pytest

from jobs.dead_letters.refused import retry_refused
from jobs.maintenance.run import maintain_landing
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from tests.destinations.conftest import MakeStory
from tests.kit.kind import KindUnderTest
from tests.kit.records import COLUMNS, Record
from tests.kit.story import Story, TableUnderTest, Target, targets

UNFIT = [target for target in targets("append", "upsert", "upsert_delete") if target.kind.unrepresentable]
# One mode of each kind, not the same one: each of these tests reads its records again several times.
ALWAYS = {(target.kind.name, "append" if target.kind.name == "clickhouse" else "upsert") for target in UNFIT}
every_unfit_target = pytest.mark.parametrize(
    "target",
    [
        pytest.param(
            target, id=str(target), marks=[pytest.mark.slow] if (target.kind.name, target.mode) not in ALWAYS else []
        )
        for target in UNFIT
    ],
)


def odd(kind: KindUnderTest, key: int, name: str) -> Record:
    """A record that a table of this kind refuses."""
    assert kind.unrepresentable
    return Record(0, key, {"id": key, "name": name, "amount": 1.0, "op": "u", "odd": kind.unrepresentable[1]})


def even(key: int, name: str) -> Record:
    return Record(0, key, {"id": key, "name": name, "amount": 1.0, "op": "u", "odd": None})


def refused(target: Target, new_story: MakeStory, **parts: object) -> TableUnderTest:
    """Key 1 has an older row, key 2 has none; key 3 has a newer one than what is refused."""
    assert target.kind.unrepresentable
    story = new_story(columns={**COLUMNS, "odd": target.kind.unrepresentable[0]}, **parts)
    table = story.table(target)
    story.tell(even(1, "old"), odd(target.kind, 3, "odd"))
    story.land()
    story.tell(odd(target.kind, 1, "odd"), odd(target.kind, 2, "odd"), even(3, "new"))
    story.land()
    table.merge()
    assert table.destination.refused() == {1: 1, 2: 2}
    return table


def read_again(table: TableUnderTest) -> None:
    """From Kafka, by the table's file as it is now."""
    pipeline = table.engine.pipeline
    assert reread_from_kafka(pipeline, from_offsets(dict.fromkeys(pipeline.topic_state().partitions, 0)))
    assert table.merge()


def mending(table: TableUnderTest) -> Story:
    """The story with a transform after which everything fits."""
    story, kind = table.story, table.target.kind
    transform = f"select * except (odd), {kind.fitting} as odd from records"
    return story.reading({**COLUMNS, "odd": _type(kind)}, transform=transform)


def _type(kind: KindUnderTest) -> str:
    assert kind.unrepresentable
    return kind.unrepresentable[0]


def rows(table: TableUnderTest) -> list[tuple[object, ...]]:
    return [row[:2] for row in table.rows()]


def assert_all_is_there(table: TableUnderTest) -> None:
    newest: list[tuple[object, ...]] = [(1, "odd"), (2, "odd"), (3, "new")]
    older: list[tuple[object, ...]] = [(1, "old"), (3, "odd")]
    assert rows(table) == sorted(newest + older if table.target.mode == "append" else newest)
    assert (table.destination.refused(), table.verify().wrong, table.stale()) == ({}, [], 0)


@every_unfit_target
def test_rows_that_are_refused_again_keep_one_letter_until_they_are_mended(
    target: Target, new_story: MakeStory
) -> None:
    table = refused(target, new_story)
    before, appends = rows(table), target.mode == "append"
    # Of key 3 it is not asked again, where a newer change of it is there.
    left = {1: 1, 2: 2} if appends else {2: 2}
    for _ in range(2):
        read_again(table)
        assert (rows(table), table.destination.refused()) == (before, left)
        assert (table.verify().wrong, table.stale()) == ([], 0 if appends else 2)
    assert retry_refused(table.engine.pipeline)[table.destination.name].stay == sum(left.values())
    assert table.destination.refused() == left
    mended = table.under(table.story, **target.kind.mended)
    retry_refused(mended.engine.pipeline)
    assert_all_is_there(mended)


@every_unfit_target
def test_rows_whose_records_are_mended_have_no_letter_however_often_they_are_replayed(
    target: Target, new_story: MakeStory
) -> None:
    table = refused(target, new_story)
    table = table.under(mending(table))
    read_again(table)
    assert_all_is_there(table)
    for window in [(1, 1), (1, 3), (3, 3)]:
        assert table.replay(*window)
        assert_all_is_there(table)


@every_unfit_target
def test_rows_whose_records_are_left_out_have_no_letter(target: Target, new_story: MakeStory) -> None:
    table = refused(target, new_story)
    before = rows(table)
    story = table.story.reading(
        {**COLUMNS, "odd": _type(target.kind)}, transform="select * from records where name <> 'odd'"
    )
    table = table.under(story)
    read_again(table)
    mended = table.under(story, **target.kind.mended)
    for _ in range(2):
        assert (rows(mended), mended.destination.refused(), mended.verify().wrong) == (before, {}, [])
        assert mended.replay(1, 3)


@every_unfit_target
def test_letters_of_removed_batches_end_when_their_records_are_read_again(target: Target, new_story: MakeStory) -> None:
    eager = {"snapshots": {"keep_days": 1e-6, "keep_last": 1}, "landed": {"keep_days": 1e-6}}
    table = refused(target, new_story, maintenance=eager)
    table.story.tell(even(4, "newest"), odd(target.kind, 5, "odd"))
    table.story.land()
    table.merge()
    assert [str(done) for done in maintain_landing(table.engine.pipeline) if done.problem] == []
    assert [b.number for b in table.engine.pipeline.intermediate.landed().batches] == [3]
    fitting = table.under(table.story, **target.kind.mended)
    done = retry_refused(fitting.engine.pipeline)[table.destination.name]
    assert (done.tried, done.stay) == (4, 3), "the others' batches are gone"
    assert "removed by retention" in str(done.problem)
    again = table.under(mending(table))
    read_again(again)
    assert (again.destination.refused(), again.verify().wrong, again.stale()) == ({}, [], 0)

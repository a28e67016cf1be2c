"""With `changes.order_by` an older change never wins over a newer one, nor over a newer delete, whenever it comes."""

from __future__ import annotations

from functools import partial

import pytest

from jobs.dead_letters.retry import retry
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from tests.destinations.conftest import MakeStory
from tests.kit import model
from tests.kit.records import COLUMNS, Record
from tests.kit.resets import reset_offsets
from tests.kit.story import Story, TableUnderTest, Target, asked_for, on_targets


def change(partition: int, key: int, op: str, version: int | None, name: str) -> Record:
    """`version` as a time, before and after 1970."""
    at = None if version is None else f"{1930 + 10 * version}-01-01T00:00:00Z"
    return Record(partition, key, {"id": key, "name": name, "amount": 1.0, "op": op, "at": at})


CHAPTERS = [
    [
        change(0, 1, "c", 1, "first"),
        change(0, 2, "c", 5, "newest"),
        change(0, 3, "c", 1, "x"),
        change(0, 4, "c", 9, "y"),
    ],
    # Late older changes; a delete; an equal version; a delete older than what is stored.
    [
        change(1, 1, "u", 3, "third"),
        change(1, 2, "u", 4, "late"),
        change(1, 3, "d", 7, "gone"),
        change(1, 4, "d", 2, "no"),
    ],
    [change(0, 1, "u", 2, "late"), change(0, 3, "u", 6, "older than its delete"), change(0, 4, "u", 9, "equal")],
    [
        change(1, 3, "u", 8, "newer than its delete"),
        change(1, 1, "d", 3, "equal delete"),
        change(1, 2, "u", None, "none"),
    ],
    [change(0, 5, "d", 4, "before it came"), change(0, 1, "u", 3, "equal after delete"), change(0, 5, "u", 3, "late")],
]


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """Keys move between partitions; each chapter is a batch."""
    changes = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "at"}
    return new_story(partitions=2, columns={**COLUMNS, "at": "timestamp"}, changes=changes).land_each(CHAPTERS)


@on_targets("upsert_delete", always="iceberg-upsert_delete")
def test_delete_that_brings_its_key_alone_leaves_a_stale_key(target: Target, new_story: MakeStory) -> None:
    """Nobody knows when it was; and the tombstone that follows it changes nothing."""
    changes = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "at"}
    story = new_story(columns={**COLUMNS, "at": "timestamp"}, changes=changes)
    table, bare = story.table(target), Record(0, 1, {"id": 1, "op": "d"})
    for chapter in [change(0, 1, "c", 1, "a"), change(0, 2, "c", 1, "b")], [bare, Record(0, 1, None)]:
        story.produce(*chapter)
        table.engine.land()
    table.merge()
    assert (table.rows(), table.stale()) == ([(1, "a", 1.0), (2, "b", 1.0)], 1)


by_version = partial(model.expected_by, "at")


@on_targets("upsert", "upsert_delete", "delete", always="upsert_delete", ways=True)
def test_named_order_wins_over_arrival(target: Target, story: Story) -> None:
    expected, table = by_version(story.records, target.mode), story.table(target)
    for coalesced in (1, 1, 1, 2):
        table.merge_some(coalesced)
    assert table.rows() == expected
    assert table.replay(3, 3), "late changes that newer ones have won over"
    assert table.rows() == expected


@on_targets("upsert_delete", always="iceberg-upsert_delete clickhouse-upsert_delete")
def test_late_change_that_is_read_from_kafka_again_stays_behind_the_delete(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge()
    # From the chapter with the late changes on, without the delete that they are older than.
    start = {TopicPartition(story.engine.flow.topic, 0): 4}
    assert reread_from_kafka(table.engine.pipeline, from_offsets(start))
    assert table.merge()
    assert table.rows() == by_version(story.records, target.mode)


# In the order of the versions of each key: 1 is updated last, 2 is deleted last, and 3 has only a late change.
NEWEST = [
    [change(0, 1, "c", 9, "newest"), change(0, 2, "c", 1, "old"), change(0, 4, "c", 9, "newest")],
    [change(1, 2, "d", 9, "gone"), change(1, 4, "u", 7, "late")],
    [change(1, 3, "c", 7, "only"), change(1, 1, "u", 8, "late")],
]
DEAD = [Record(1, key, {"id": key, "name": "dead", "op": "u", "amount": "1,5", "at": "1930-01-01T00:00:00Z"})
        for key in (1, 2)]  # fmt: skip
READ_LATER = "select id, name, cast(replace(amount, ',', '.') as double) as amount, op, at from records"


@on_targets("upsert", "upsert_delete", always="upsert_delete", shared=True)
def test_newest_version_wins_over_retried_and_replayed_late_changes(target: Target, new_story: MakeStory) -> None:
    """Whatever batches a retry or a replay looks at, also if somebody has removed the rows."""
    columns = {**COLUMNS, "at": "timestamp"}
    changes = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "at"}
    story = new_story(partitions=2, columns=columns, changes=changes)
    story.land_each(NEWEST)
    story.produce(*DEAD)
    (landed,) = story.land()
    assert landed.counts.quarantined == len(DEAD)
    table, expected = story.table(target), by_version([r for chapter in NEWEST for r in chapter], target.mode)
    table.merge()
    assert table.rows() == expected
    table.remove(100)
    assert table.replay(2, 3)
    assert table.rows() == expected, "rows that were removed"
    corrected = story.reading({**columns, "amount": "string"}, transform=READ_LATER)
    pipeline = corrected.engine.edited(tables=[table.entry]).pipeline
    assert retry(pipeline).recovered == len(DEAD)
    now = table.under(corrected)
    assert now.rows() == expected, "dead letters are older"
    assert now.replay(2, 3)
    assert now.rows() == expected
    verdict = now.verify()
    assert verdict.wrong == []


# The version 9 of these is a mistake of the pipeline file, which should have been 2.
MISTAKEN = [
    *(change(0, 1, "c", 9, "mistaken"), change(1, 1, "u", 3, "third")),
    *(change(0, 2, "d", 9, "mistaken"), change(1, 2, "u", 3, "third")),
    *(change(0, 3, "c", 9, "mistaken"), change(1, 3, "d", 1, "before it")),
    *(change(0, 4, "c", 9, "mistaken"), change(1, 4, "u", 8, "eighth")),
]
LATER = [*(change(1, key, "u", 5, "fifth") for key in (2, 3, 4)), change(1, 1, "d", 3, "equal")]
CORRECTING = (
    "select id, name, amount, op, if(name = 'mistaken', timestamp'1950-01-01T00:00:00Z', at) as at from records"
)


def corrected(records: list[Record]) -> list[Record]:
    found = []
    for r in records:
        assert isinstance(r.value, dict)
        at = "1950-01-01T00:00:00Z" if r.value["name"] == "mistaken" else r.value["at"]
        found.append(Record(r.partition, r.key, {**r.value, "at": at}))
    return found


@pytest.fixture(scope="module")
def reread(new_story: MakeStory, request: pytest.FixtureRequest) -> dict[str, TableUnderTest]:
    """Tables that have merged the mistake; then Kafka is read again, and later changes are landed."""
    columns = {**COLUMNS, "at": "timestamp"}
    changes = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "at"}
    story = new_story(partitions=2, columns=columns, changes=changes)
    story.produce(*MISTAKEN)
    story.land()
    tables = {str(target): story.table(target) for target in asked_for(request, "reread")}
    for table in tables.values():
        table.merge()
        assert table.rows() == by_version(MISTAKEN, table.target.mode)
    right = story.reading(columns, transform=CORRECTING)
    pipeline = right.engine.edited(tables=[table.entry for table in tables.values()]).pipeline
    assert reread_from_kafka(pipeline, from_offsets(dict.fromkeys(pipeline.topic_state().partitions, 0)))
    right.produce(*LATER)
    right.land()
    return {name: table.under(right) for name, table in tables.items()}


@on_targets("upsert", "upsert_delete", always="iceberg-upsert_delete")
def test_order_that_is_read_again_with_a_smaller_value(target: Target, reread: dict[str, TableUnderTest]) -> None:
    """What was read last counts, also for a row that stays, and for a delete. Later changes in between need a replay
    where a version decides, and after a delete."""
    table = reread[str(target)]
    table.merge_some(1)
    assert table.rows() == by_version(corrected(MISTAKEN), target.mode)
    assert table.replay(1, 1)
    assert table.rows() == by_version(corrected(MISTAKEN), target.mode)
    assert table.merge()
    assert table.replay(1, 3)
    assert table.rows() == by_version(corrected([*MISTAKEN, *LATER]), target.mode)
    verdict = table.verify()
    assert verdict.wrong == []


def rows_after_a_reset(target: Target, new_story: MakeStory, **change: object) -> list[model.Row]:
    """A reset accepts other `changes`; key 3 is deleted before it, and after it an older change comes."""
    keyed = {"key": {"columns": ["id"]}, "op": {"field": "op"}}
    columns = {**COLUMNS, "lsn": "long", "seconds": "long", "at": "timestamp"}
    ordered = {**keyed, "order_by": "lsn"}
    before = new_story(columns=columns, changes=ordered)

    def happens(story: Story, table: TableUnderTest, key: int, op: str, seconds: int) -> None:
        at = f"2024-01-01T00:00:{seconds:02}Z"
        order = {"lsn": seconds * 1_000_000, "seconds": seconds, "at": at}
        story.produce(Record(0, key, {"id": key, "name": op, "amount": float(seconds), "op": op, **order}))
        story.land()
        table.merge()

    old = before.table(target)
    for key, op, seconds in ((1, "c", 1), (1, "d", 2), (3, "d", 9)):
        happens(before, old, key, op, seconds)
    after = before.edited(changes={**ordered, **change})
    new = old.under(after)
    reset_offsets(new.engine.pipeline)
    for key, op, seconds in ((1, "u", 3), (2, "c", 4), (2, "d", 6), (2, "u", 5), (3, "u", 8)):
        happens(after, new, key, op, seconds)
    return new.rows()


# One decision for all kinds (`CommittedState.orders_otherwise`): each sees one change, and one kind all of them. In
# ClickHouse rows have their version.
@on_targets("upsert_delete", "delete", can="orders_by_text", always="iceberg-upsert_delete")
def test_earlier_delete_has_no_effect_in_an_order_of_another_type(target: Target, new_story: MakeStory) -> None:
    assert rows_after_a_reset(target, new_story, order_by="at") == [(1, "u", 3.0), (3, "u", 8.0)]


@on_targets("upsert_delete", "delete", can="orders_by_text", always="duckdb-upsert_delete")
def test_earlier_delete_has_no_effect_in_another_order_of_its_type(target: Target, new_story: MakeStory) -> None:
    assert rows_after_a_reset(target, new_story, order_by="seconds") == [(1, "u", 3.0), (3, "u", 8.0)]


@on_targets("upsert_delete", "delete", can="orders_by_text", always="duckdb-upsert_delete")
def test_earlier_delete_keeps_its_place_with_another_op_mapping(target: Target, new_story: MakeStory) -> None:
    op = {"field": "op", "delete": ["d", "x"]}
    assert rows_after_a_reset(target, new_story, op=op) == [(1, "u", 3.0)]

"""A replay leaves every table as if it had never been replayed, and brings back what somebody removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from jobs.dead_letters.listing import list_dead_letters
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.replay.landed import replay_window
from resources.errors import ConfigurationError
from tests.destinations.conftest import MakeStory
from tests.kit import model
from tests.kit.engine import catalog
from tests.kit.kinds import KINDS
from tests.kit.records import COLUMNS, Record, random_changes
from tests.kit.resets import reset_offsets
from tests.kit.story import COORDINATES, Story, TableUnderTest, Target, asked_for, on_targets


def put(key: int, name: str, op: str = "u") -> Record:
    return Record(key % 2, key, {"id": key, "name": name, "amount": float(key), "op": op})


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """Four batches."""
    story = new_story(partitions=2)
    story.produce(*random_changes(5, 160, 15, 2, bad=0.03))
    assert len(story.land(40)) == 4
    return story


@on_targets(always="iceberg-upsert_delete clickhouse-upsert_delete bigquery-append duckdb-append")
def test_replay_of_landed_batches_changes_nothing_and_repairs(target: Target, story: Story) -> None:
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


@on_targets(always="iceberg-upsert_delete clickhouse-upsert_delete bigquery-append duckdb-append", shared=True)
def test_column_that_no_run_has_brought_yet_does_not_stop_a_replay(target: Target, new_story: MakeStory) -> None:
    story = new_story(partitions=2)
    story.land_each([[put(1, "a")], [put(2, "b"), put(3, "c")]])
    table = story.table(target)
    table.merge()
    table.remove(below=3)
    wider = table.under(story.reading({**COLUMNS, "more": "string"}))
    assert wider.replay(1, 2)
    assert wider.rows() == [(1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0)]
    assert [row["more"] for row in wider.select("more")] == [None] * 3


@on_targets(always="append", shared=True)
def test_window_holds_the_batches_that_were_landed_in_it(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge()
    pipeline, destination = table.engine.pipeline, table.destination
    second, third = (
        datetime.fromtimestamp(b.batch.planned_at / 1000, UTC) for b in pipeline.intermediate.landed().batches[1:3]
    )
    done = replay_window(pipeline, destination, second, third)
    assert done
    assert [b.number for b in done.batches] == [2], "from the start on, up to before the end"
    assert table.rows() == model.expected(story.records, target.mode)
    assert replay_window(pipeline, destination, third + timedelta(days=1), third + timedelta(days=2)) is None


@on_targets("append", "delete", always="append", shared=True)
def test_rows_that_cannot_be_distinguished_are_not_replayed(target: Target, story: Story) -> None:
    """A kind either adds the coordinates itself, or refuses to replay batches that were merged without them."""
    table = story.table(target, metadata_columns=[])
    if table.destination.table.metadata_columns:
        assert table.destination.table.metadata_columns == COORDINATES
        return
    table.merge_some(2)
    with pytest.raises(ConfigurationError, match="can be replayed only by its rows' coordinates"):
        table.replay(1, 2)
    traced = table.under(story, metadata_columns=COORDINATES)
    traced.merge()
    expected = model.expected(story.records, target.mode)
    assert traced.rows() == expected
    for first in (1, 2):
        with pytest.raises(ConfigurationError, match=r"batches up to 2 were written without .* begin at batch 3"):
            traced.replay(first, 4)
    assert traced.replay(3, 4)
    with pytest.raises(ConfigurationError, match=r"batches up to 2 were written without .* fill a new table"):
        reread_from_kafka(traced.engine.pipeline, from_offsets({TopicPartition(story.engine.flow.topic, 0): 0}))
    assert traced.rows() == expected


@on_targets("append", "delete", always="append", shared=True)
def test_a_new_table_without_coordinates_takes_no_records_that_were_read_again(
    target: Target, new_story: MakeStory
) -> None:
    story = new_story()
    story.land_each([[put(2, "a"), put(4, "b")], [put(2, "", "d")]])
    traced = story.table(target, metadata_columns=COORDINATES)
    traced.merge()
    assert reread_from_kafka(traced.engine.pipeline, from_offsets({TopicPartition(story.engine.flow.topic, 0): 0}))
    traced.merge()
    table = story.table(target, metadata_columns=[])
    if table.destination.table.metadata_columns:
        return  # a kind that adds them itself
    table.merge_some(2)
    expected = table.rows()
    with pytest.raises(ConfigurationError, match="can be replayed only by its rows' coordinates"):
        table.merge()
    with pytest.raises(ConfigurationError, match=r"batches up to 2 were written without"):
        table.under(story, metadata_columns=COORDINATES).merge()
    assert table.rows() == expected == model.expected(story.records, target.mode)


# ---- from Kafka -----------------------------------------------------------------------------------------------------


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


Tables = dict[str, TableUnderTest]


def tables_of(story: Story, wanted: list[Target]) -> Tables:
    """One of each, with all that is landed."""
    made = {str(target): story.table(target) for target in wanted}
    for table in made.values():
        table.merge()
    return made


def from_kafka(story: Story, tables: Tables, offset: int = 0, end: int | None = None) -> None:
    """Read again with this story's file."""
    pipeline = story.engine.edited(tables=[table.entry for table in tables.values()]).pipeline
    partitions = pipeline.topic_state().partitions
    wanted = from_offsets(dict.fromkeys(partitions, offset), None if end is None else dict.fromkeys(partitions, end))
    assert reread_from_kafka(pipeline, wanted)


@pytest.fixture(scope="module")
def late(new_story: MakeStory, request: pytest.FixtureRequest) -> Tables:
    """A pipeline that began in the middle of its topic."""
    story = new_story(partitions=2, source={"start": "latest"})
    story.produce(*BEFORE)
    story.land()
    story.produce(*AFTER)
    story.land()
    tables = tables_of(story, asked_for(request, "late"))
    for table in tables.values():
        assert table.rows() == model.expected(AFTER, table.target.mode)
    from_kafka(story, tables)
    return tables


@on_targets(always="iceberg-upsert_delete clickhouse-upsert_delete duckdb-append")
def test_records_from_before_the_start_are_read_from_kafka(target: Target, late: Tables) -> None:
    table = late[str(target)]
    expected = model.expected([*BEFORE, *AFTER], target.mode)
    done = table.merge()
    assert done
    assert [b.number for b in done.batches] == [3]
    assert table.rows() == expected
    for window in [(1, 9), (3, 3)]:
        assert table.replay(*window), "changes nothing"
        assert table.rows() == expected
    verdict = table.verify()
    assert (verdict.wrong, verdict.rows, verdict.beside) == ([], len(expected), 0)
    table.remove(below=6)
    assert table.replay(1, 3)
    assert table.rows() == expected


# One comparison for all kinds.
@pytest.mark.parametrize(
    ("target", "says"),
    [
        (Target(KINDS["iceberg"], "append"), "1 rows that no landed change explains"),
        (Target(KINDS["iceberg"], "upsert_delete"), "1 rows that landed changes have deleted"),
    ],
    ids=["append", "upsert_delete"],
)
def test_row_in_the_place_of_a_delete_is_found(target: Target, says: str, late: Tables) -> None:
    table = late[str(target)]
    table.merge()
    found = catalog(table.engine.connections).require(table.name)
    place = {"_topic": table.engine.flow.topic, "__partition": 1, "_offset": 2}
    row = {"id": 3, "name": "theirs", "amount": 3.0, **place}
    found.append(pa.Table.from_pylist([row], found.schema().as_arrow()))
    assert table.verify().wrong == [says]


WIDE = {**COLUMNS, "amount": "long"}
NARROW = {**COLUMNS, "amount": "int"}
OLD, NEW = [put(7, "old"), put(8, "old")], [put(7, "new"), put(8, "gone", "d")]
for record in NEW:
    assert isinstance(record.value, dict)
    record.value["amount"] = 2**40


@pytest.fixture(scope="module")
def reread(new_story: MakeStory, request: pytest.FixtureRequest) -> tuple[Story, Story, Tables]:
    """The newest records of two keys are dead letters; the file was corrected, and Kafka is read again."""
    wide = new_story(columns=WIDE, partitions=2)
    narrow = wide.reading(NARROW)
    narrow.produce(*OLD)
    narrow.land()
    narrow.produce(*NEW)
    narrow.land()
    tables = tables_of(narrow, asked_for(request, "reread"))
    from_kafka(wide, tables)
    return narrow, wide, {name: table.under(wide) for name, table in tables.items()}


@on_targets(always="upsert_delete", shared=True)
def test_what_is_read_again_counts_in_every_later_replay(target: Target, reread: tuple[Story, Story, Tables]) -> None:
    table = reread[2][str(target)]
    expected = model.expected([*OLD, *NEW], target.mode)
    assert table.merge()
    assert table.rows() == expected
    assert table.replay(1, 1), "of a batch from before the dead letters"
    assert table.rows() == expected


@on_targets(always="upsert_delete", shared=True)
def test_a_stricter_file_brings_nothing_back(target: Target, reread: tuple[Story, Story, Tables]) -> None:
    """A record that cannot be read any more keeps its effect; it is a dead letter until it can be read again."""
    narrow, wide, tables = reread
    table = tables[str(target)]
    pipeline = wide.engine.edited(tables=[table.entry for table in tables.values()]).pipeline
    if len(pipeline.intermediate.landed().batches) == 3:
        assert not list(list_dead_letters(pipeline, 9))
        from_kafka(narrow, tables)
    assert len(list(list_dead_letters(pipeline, 9))) == 2
    assert table.merge()
    expected = model.expected([*OLD, *NEW], target.mode)
    assert table.rows() == expected
    assert table.replay(1, 9)
    assert table.rows() == expected


@pytest.fixture(scope="module")
def left_out(new_story: MakeStory, request: pytest.FixtureRequest) -> Tables:
    """Of some records nothing is wanted any more."""
    story = new_story(partitions=2)
    story.produce(put(1, "unwanted"), put(2, "old"), put(2, "unwanted"))
    story.land()
    tables = tables_of(story, asked_for(request, "left_out"))
    from_kafka(story.reading(COLUMNS, transform="select * from records where name <> 'unwanted'"), tables)
    return tables


@on_targets(always="iceberg-append upsert_delete", shared=True)
def test_rows_of_records_that_are_left_out_when_they_are_read_again(target: Target, left_out: Tables) -> None:
    table = left_out[str(target)]
    assert table.merge()
    one, two, old = (1, "unwanted", 1.0), (2, "unwanted", 2.0), (2, "old", 2.0)
    stays = {"append": [one, old, two], "delete": [one, old, two], "upsert": [one, old], "upsert_delete": [old]}
    assert table.rows() == sorted(stays[target.mode])
    verdict = table.verify()
    assert (verdict.wrong, verdict.beside) == ([], len(stays[target.mode]) - 1)


@on_targets("delete", always="iceberg-delete", ways=True)
def test_rows_after_a_delete_stay_as_they_were_read(target: Target, new_story: MakeStory) -> None:
    story = new_story(partitions=2)
    story.produce(put(1, "gone"), put(1, "", "d"), put(1, "first"), put(1, "unwanted"), put(2, "other"))
    story.land()
    table = story.table(target)
    before = [(1, "first", 1.0), (1, "unwanted", 1.0), (2, "other", 2.0)]
    table.merge()
    assert table.rows() == before
    transform = "select * except (name), concat(name, ' again') as name from records where name <> 'unwanted'"
    other = story.reading(COLUMNS, transform=transform)
    from_kafka(other, {str(target): table})
    again = table.under(other)
    assert again.merge()
    assert again.rows() == before
    again.plant((1, "planted", 1.0))
    assert again.replay(1, 2)
    assert again.rows() == before, "a row from nowhere was there before the delete"
    assert again.verify().wrong == []
    again.remove(below=2)
    assert again.replay(1, 2)
    assert again.rows() == [(1, "first again", 1.0), (2, "other", 2.0)]


def at(moment: int, name: str) -> Record:
    return Record(0, 1, {"id": 1, "name": name, "amount": 1.0, "op": "u", "at": moment})


# One reduction for all kinds. In ClickHouse rows have their version, which no other order can have.
@on_targets("upsert", "upsert_delete", can="orders_by_text", always="iceberg-upsert_delete")
def test_changes_of_another_order_say_nothing_when_records_are_read_again(target: Target, new_story: MakeStory) -> None:
    """By the new order the first record would be the newest; it is read only by the old one. The third one is read
    again too, although it is landed."""
    before = new_story(columns={**COLUMNS, "at": "long"})
    before.land_each([[at(9, "first"), at(1, "second"), at(3, "third")]])
    old = before.table(target)
    old.merge()
    after = before.edited(changes={"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "at"})
    reset_offsets(after.engine.pipeline)
    table = old.under(after)
    table.merge()
    from_kafka(after, {str(target): table}, offset=1, end=2)
    assert table.merge()
    assert table.rows() == [(1, "third", 1.0)]
    table.remove(below=2)
    assert table.replay(3, 3)
    assert table.rows() == [(1, "third", 1.0)]
    assert table.verify().wrong == []

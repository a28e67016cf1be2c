"""A value that a change leaves out stays as the change before left it, however the log is cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import protocol
from jobs.dead_letters.landing_again import land_again
from jobs.dead_letters.landing_moved_rows import land_moved_rows
from jobs.dead_letters.listing import list_dead_letters
from jobs.dead_letters.open_count import open_count
from jobs.dead_letters.retry import retry
from jobs.landing.publish import publish_read
from jobs.landing.read_ahead import read
from jobs.maintenance.run import maintain_landing
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.resets.take_over import plan_take_over
from resources.connections import Connections
from tests.destinations.conftest import MakeStory
from tests.kit import model
from tests.kit.dead_letters import read_all
from tests.kit.engine import catalog
from tests.kit.examples import few
from tests.kit.lake import rows_away
from tests.kit.left_out import COLUMNS, LEFT_OUT, change, comparable, moved, random_left_out, without_position
from tests.kit.records import Record
from tests.kit.resets import reset_offsets
from tests.kit.story import COORDINATES, Story, TableUnderTest, Target, on_targets

DELETING = on_targets("upsert_delete", can="keeps_unchanged_columns", shared=True)
# What landing does is the same for every kind.
FINDING = on_targets("upsert_delete", can="finds_rows")
SLOW = pytest.mark.slow
EAGER = {"snapshots": {"keep_days": 1e-6, "keep_last": 1}, "landed": {"keep_days": 1e-6}}
Rows = dict[int, dict[str, Any]]


def debezium(
    new_story: MakeStory, partitions: int = 1, maintenance: dict[str, Any] | None = None, **envelope: object
) -> Story:
    value = {"format": "json", "envelope": {"kind": "debezium", **envelope}, "columns": COLUMNS}
    more = {"maintenance": maintenance} if maintenance else {}
    key = {"key": {"columns": ["id"]}}
    return new_story(partitions, columns=COLUMNS, source={"value": value}, changes=key, **more)


def enveloped(story: Story, **options: object) -> Story:
    """The same pipeline with other options of the envelope."""
    value = {"format": "json", "envelope": {"kind": "debezium", **options}, "columns": COLUMNS}
    return story.reading(COLUMNS, value=value)


def expected(records: list[Record], mode: str) -> Rows:
    return {key: comparable(row) for key, row in model.with_left_out(records, LEFT_OUT, mode).items()}


def held(table: TableUnderTest) -> Rows:
    """By id, as JSON would write it; an array that is null and an empty one are the same in BigQuery."""
    rows = table.select(*COLUMNS)
    found = {int(row["id"]): comparable(row) for row in rows}
    assert len(found) == len(rows), "one row a key"
    return found


@pytest.fixture(scope="module")
def log(new_story: MakeStory) -> Story:
    """Four batches of random changes."""
    story = debezium(new_story, partitions=2)
    story.produce(*random_left_out(3, 120, 8, 2))
    for size in (37, 51, 3, 100):
        story.edited(batch={"max_records": size}).engine.land(1)
    return story


def never_depends_on_the_cuts(coalesced: list[int], window: tuple[int, int], target: Target, log: Story) -> None:
    table = log.table(target)
    for count in coalesced:
        table.merge_some(count)
    table.merge()
    assert held(table) == expected(log.records, target.mode), coalesced
    assert table.replay(window[0], sum(window))
    assert held(table) == expected(log.records, target.mode), (coalesced, "replayed", window)
    verdict = table.verify()
    assert verdict.wrong == []
    assert verdict.compared == len(expected(log.records, target.mode))


@DELETING
def test_result_never_depends_on_where_the_log_was_cut(target: Target, log: Story) -> None:
    never_depends_on_the_cuts([1, 2], (2, 1), target, log)
    assert open_count(log.engine.pipeline.intermediate) == 0


@SLOW
@on_targets("upsert", "upsert_delete", can="keeps_unchanged_columns")
@few(4)
@given(coalesced=st.lists(st.integers(1, 3), max_size=3), window=st.tuples(st.integers(1, 4), st.integers(0, 3)))
def test_result_depends_on_no_cuts(coalesced: list[int], window: tuple[int, int], target: Target, log: Story) -> None:
    never_depends_on_the_cuts(coalesced, window, target, log)


@pytest.fixture(scope="module")
def chapters(new_story: MakeStory) -> Story:
    """Five batches."""
    story = debezium(new_story)
    return story.land_each(
        [
            [change(1, "c", body="one", raw="AQ==", tags=["t"], n=1), change(2, "u", n=1)],
            [change(1, "u", n=2)],
            [change(1, "u", body=None, n=3), change(1, "u", raw="Ag==", n=4), change(2, "u", body="two", n=2)],
            [change(1, "d"), change(1, "c", n=5), change(2, "u", n=3)],
            [change(1, "u", tags=["u", "v"], n=6)],
        ]
    )


@on_targets("upsert_delete", can="keeps_unchanged_columns", always="iceberg-upsert_delete")
def test_change_by_change(target: Target, chapters: Story) -> None:
    one = {"id": 1, "body": "one", "raw": "AQ==", "tags": ["t"], "n": 2}
    for way in target.kind.ways:
        table = chapters.table(target, **way)
        found = []
        for _ in range(5):
            table.merge_some(1)
            found.append(held(table))
        assert [rows[1] for rows in found[1:]] == [
            one,
            {**one, "body": None, "raw": "Ag==", "n": 4},
            {"id": 1, "body": None, "raw": None, "tags": [], "n": 5},
            {"id": 1, "body": None, "raw": None, "tags": ["u", "v"], "n": 6},
        ], way
        assert [rows[2]["body"] for rows in found] == [None, None, "two", "two", "two"], way


@on_targets("upsert_delete", can="keeps_unchanged_columns", shared=True)
def test_rows_that_were_removed_come_back_whole(target: Target, chapters: Story) -> None:
    """A replay of a batch with a change that omits values finds them in earlier batches."""
    table = chapters.table(target)
    table.merge()
    before = held(table)
    table.remove(100)
    assert table.replay(4, 4)
    assert held(table) == before


@pytest.fixture(scope="module")
def changed(new_story: MakeStory) -> Story:
    """The option was `keep` for two batches and `null` for the third."""
    keep = debezium(new_story, unavailable="keep")
    keep.produce(change(1, "c", body="one", n=1), change(2, "c", body="two", n=1))
    keep.land()
    keep.produce(change(1, "u", n=2))
    keep.land()
    nulls = enveloped(keep, unavailable="null")
    nulls.produce(change(2, "u", n=2))
    nulls.land()
    return nulls


@pytest.mark.slow
@DELETING
def test_batches_that_keep_values_go_on_doing_so_after_the_option_is_changed(target: Target, changed: Story) -> None:
    table = changed.table(target)
    table.under(enveloped(changed, unavailable="keep")).merge_some(1)
    table.merge()
    for window in [None, (2, 2), (2, 3)]:
        if window:
            assert table.replay(*window)
        assert {key: row["body"] for key, row in held(table).items()} == {1: "one", 2: None}, window


@on_targets("upsert_delete", can="keeps_unchanged_columns", always="iceberg-upsert_delete")
def test_pipeline_that_refused_such_changes_begins_to_keep_values(target: Target, new_story: MakeStory) -> None:
    """Its intermediate table, and BigQuery's staging table, get the new column; the dead letters take their place."""
    refuses = debezium(new_story, unavailable="refuse")
    table = refuses.table(target)
    one = change(1, "c", body="one", raw=None, tags=[], n=1)
    refuses.produce(one, change(1, "u", n=2), change(2, "c", body="two", raw=None, tags=[], n=1))
    (landed,) = refuses.land()
    assert landed.counts.quarantined == 1
    table.merge()
    assert held(table)[1]["n"] == 1
    keeps = enveloped(refuses)
    keeps.produce(change(2, "u", n=2))
    keeps.land()
    keeping = table.under(keeps)
    keeping.merge()
    retried = retry(keeping.engine.pipeline)
    assert (retried.tried, retried.recovered) == (1, 1)
    assert {key: (row["body"], row["n"]) for key, row in held(keeping).items()} == {1: ("one", 2), 2: ("two", 2)}


ONE: dict[str, Any] = {"body": "one", "raw": "AQ==", "tags": ["t"]}


# `make test` sees changed keys where the log is cut at random (`log`).
@SLOW
@DELETING
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_changed_key_takes_the_values_of_the_old_one(size: int, target: Target, new_story: MakeStory) -> None:
    """Wherever the log is cut, and twice in a row; the next change of the row leaves the values out too."""
    story = debezium(new_story)
    story.produce(change(1, "c", **ONE), change(1, "u", body="two"), *moved(1, 2), *moved(2, 3, tags=["u"]))
    story.produce(change(3, "u", n=7), change(1, "c", body="new", n=8))
    table = story.table(target)
    pipeline = story.edited(batch={"max_records": size}).engine.pipeline
    for _ in protocol.land(pipeline, 0):
        table.merge()
    table.merge()
    assert held(table) == expected(story.records, target.mode)
    assert held(table)[3] == {"id": 3, "body": "two", "raw": "AQ==", "tags": ["u"], "n": 7}
    assert (table.stale(), table.verify().wrong, open_count(pipeline.intermediate)) == (0, [], 0)
    assert table.replay(1, pipeline.intermediate.landed().batches[-1].number)
    assert held(table) == expected(story.records, target.mode)


@FINDING
@pytest.mark.parametrize("first", ["the insert", *(pytest.param(f, marks=SLOW) for f in ("the delete", "neither"))])
def test_changed_key_is_taken_across_partitions(first: str, target: Target, new_story: MakeStory) -> None:
    """Whichever of the two records is landed first; the row's other changes are in other batches."""
    story = debezium(new_story, partitions=2)
    table = story.table(target)
    story.produce(change(2, "c", **ONE), change(2, "u", body="two"))
    delete, tombstone, insert = moved(2, 1, 0, 1, n=3)
    # The same keys once more, with another value; and a row that is deleted as it stands.
    again = [
        *moved(1, 2, 1, 0),
        change(2, "u", body="again"),
        change(4, "c", **ONE),
        change(4, "d"),
        *moved(2, 1, 0, 1),
    ]
    sent = {"the delete": [delete, tombstone], "the insert": [insert], "neither": []}[first]
    story.produce(*sent)
    story.land()
    table.merge()
    assert (1 in held(table), table.stale()) == (False, 1 if first == "the insert" else 0)
    story.produce(*(r for r in (delete, tombstone, insert) if r not in sent), change(1, "u", 1, n=4))
    story.land()
    table.merge()
    assert held(table) == {1: {"id": 1, "body": "two", "raw": "AQ==", "tags": ["t"], "n": 4}}
    for part in (again[:3], again[3:]):
        story.produce(*part)
        story.land()
    table.merge()
    assert held(table) == {1: {"id": 1, "body": "again", "raw": "AQ==", "tags": ["t"], "n": 0}}
    assert (table.stale(), table.verify().wrong, open_count(story.engine.pipeline.intermediate)) == (0, [], 0)


@FINDING
def test_chain_of_changed_keys_is_taken_by_the_next_run_where_one_died(
    target: Target, new_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row was moved twice; the run died when it knew the first move and not yet the second."""
    story = debezium(new_story)
    table = story.table(target)
    story.produce(change(1, "c", **ONE), *moved(1, 2), *moved(2, 3))
    pipeline = story.engine.pipeline
    pipeline.intermediate.prepare()
    planned = protocol.plan(pipeline)
    assert planned.batch
    publish_read(read(pipeline, pipeline.intermediate, planned), {})
    table.merge()
    assert (table.stale(), held(table)) == (1, {})
    with monkeypatch.context() as dying:
        dying.setattr("jobs.dead_letters.landing_again.names_unchanged_columns", lambda _: False)
        done = land_again(pipeline)
    assert done
    assert done.recovered == {1: 1}
    assert story.land() == []
    table.merge()
    assert (table.stale(), held(table)) == (0, {3: {"id": 3, **ONE, "n": 0}})


@pytest.mark.slow
@FINDING
def test_changed_keys_are_taken_when_sent_again_after_a_bad_change_and_without_a_position(
    target: Target, new_story: MakeStory
) -> None:
    """No limit for dead letters counts them while their values are looked for."""
    story = debezium(new_story, partitions=2).edited(dead_letters={"max_records": 1})
    table = story.table(target)
    # Each of three rows has taken the key of the next one; a connector that begins again sends that again.
    shifted = [*moved(3, 4), *moved(2, 3), *moved(1, 2)]
    story.produce(*(change(key, "c", **{**ONE, "body": f"{key}"}) for key in (1, 2, 3)), *shifted, *shifted)
    # After the bad change another one brings all values.
    story.produce(change(10, "c", **ONE), change(10, "u", body="lost", n=cast(int, "x")), change(10, "u", **ONE, n=2))
    # Of a source that does not say where in its log a change stands the two records belong together in one partition.
    story.produce(change(20, "c", **ONE), *map(without_position, moved(20, 26)), change(40, "c", **ONE))
    story.land()
    table.merge()
    stay: Rows = {key: {"id": key, **ONE, "body": f"{key - 1}", "n": 0} for key in (2, 3, 4)}
    stay |= {26: {"id": 26, **ONE, "n": 0}}
    assert held(table) == {**stay, 10: {"id": 10, **ONE, "n": 2}, 40: {"id": 40, **ONE, "n": 0}}
    assert (table.stale(), table.verify().wrong) == (0, [])
    story.produce(*shifted, *shifted, *moved(10, 11), *map(without_position, moved(40, 41, 0, 1)))
    story.land()
    table.merge()
    assert held(table) == {**stay, 11: {"id": 11, **ONE, "n": 0}}
    assert (table.stale(), table.verify().wrong) == (1, [])


@SLOW
@FINDING
def test_changed_key_is_taken_where_headers_are_columns(target: Target, new_story: MakeStory) -> None:
    """Debezium need not send another header than the one that names the old key. Of records that were landed before
    headers were columns it is not known whether they have others: these are read from Kafka again."""
    story = debezium(new_story)
    table = story.table(target, metadata_columns=[*COORDINATES, "headers"])
    pipeline = table.engine.pipeline
    early, late = ([replace(r, headers=r.headers[:1]) for r in moved(old, old + 1)] for old in (1, 5))
    story.produce(early[2])
    story.land()
    story.produce(change(1, "c", **ONE), *early[:2], change(5, "c", **ONE), *late)
    table.engine.land()
    table.merge()
    assert held(table) == {6: {"id": 6, **ONE, "n": 0}}
    assert reread_from_kafka(pipeline, from_offsets({TopicPartition(story.engine.flow.topic, 0): 0}))
    table.merge()
    assert {row["id"]: row["_headers"] for row in table.select("id", "_headers")} == {
        new: json.dumps({"__debezium.oldkey": json.dumps({"id": new - 1})}) for new in (2, 6)
    }
    assert held(table) == {new: {"id": new, **ONE, "n": 0} for new in (2, 6)}
    assert (table.stale(), open_count(pipeline.intermediate)) == (0, 0)


@pytest.mark.slow
@FINDING
def test_table_that_lacks_a_revision_is_not_asked(target: Target, new_story: MakeStory) -> None:
    story = debezium(new_story)
    narrow = story.reading({**COLUMNS, "n": "int"})
    narrow.produce(change(1, "c", **ONE), change(1, "u", body="two", n=2**40))
    narrow.land()
    table = story.table(target)
    table.under(narrow).merge()
    assert held(table)[1]["body"] == "one"
    pipeline = story.engine.pipeline
    pipeline.intermediate.prepare()
    assert land_again(pipeline)
    story.produce(*moved(1, 2))
    table.engine.land()
    table.merge()
    assert held(table) == {2: {"id": 2, **ONE, "body": "two", "n": 0}}


@SLOW
@FINDING
def test_chain_is_taken_by_one_retry(target: Target, new_story: MakeStory) -> None:
    """A row was moved twice, and something about it could not be read."""
    story = debezium(new_story)
    narrow = story.reading({**COLUMNS, "n": "int"})
    narrow.produce(change(1, "c", **ONE), change(1, "u", body="two", n=2**40), *moved(1, 2), *moved(2, 3))
    narrow.land()
    assert open_count(narrow.engine.pipeline.intermediate) == 3
    table = story.table(target)
    assert retry(table.engine.pipeline).recovered == 3
    assert held(table) == {3: {"id": 3, **ONE, "body": "two", "n": 0}}


@pytest.mark.slow
@FINDING
@pytest.mark.parametrize("wrong", ["recreated", pytest.param("a column is new", marks=SLOW)])
def test_table_that_cannot_say_old_values_holds_up_no_landing(wrong: str, target: Target, new_story: MakeStory) -> None:
    story = debezium(new_story)
    table = story.table(target)
    story.produce(change(1, "c", **ONE), moved(1, 2)[2])
    story.land()
    table.merge()
    if wrong == "recreated":
        target.kind.recreate(table.engine.connections, table.name)
    else:
        story = story.reading({**COLUMNS, "note": "string"})
        table = table.under(story)
    story.produce(*moved(1, 3))
    (landed,) = table.engine.land()
    assert (landed.counts.quarantined, landed.counts.landed) == (0, 2)


@pytest.mark.slow
@FINDING
def test_changed_keys_of_a_topic_take_values_of_that_topic(target: Target, new_story: MakeStory) -> None:
    """Two databases have rows of the same keys, each in a topic of its own, and a table for each."""
    one, other = debezium(new_story), debezium(new_story)
    source = {**one.engine.document["source"], "topics": [one.engine.flow.topic, other.engine.flow.topic]}
    both = one.edited(source=source, changes={"key": {"columns": ["id"]}, "order_by": "arrival"})
    table, another = (both.table(target, route={"topics": [s.engine.flow.topic]}) for s in (one, other))
    engine = both.engine.edited(tables=[table.entry, another.entry])
    for story, change_of_it in [
        (one, [change(1, "c", **ONE)]),
        (other, [change(1, "c", **{**ONE, "body": "another"}), change(1, "u", body="newer")]),
        (one, moved(1, 2)),
    ]:
        story.produce(*change_of_it)
        engine.land()
    pipeline = engine.pipeline
    protocol.merge(pipeline, pipeline.destinations()[0])
    assert held(table) == {2: {"id": 2, **ONE, "n": 0}}


@FINDING
@pytest.mark.parametrize(
    "known",
    ["", *(pytest.param(one, marks=SLOW) for one in ("once it can be read", "at once", "before it got the delete"))],
)
def test_changed_key_takes_what_the_table_has_of_the_old_one(
    known: str, target: Target, new_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where retention has removed the landed changes; not once it has removed the delete of the old key, too."""
    story = debezium(new_story, maintenance=EAGER)
    delete, tombstone, insert = moved(1, 2, n=3)
    table = story.table(target)
    story.produce(change(1, "c", **ONE), change(1, "u", n=2), *([] if known else [delete]))
    story.land()
    table.merge()
    story.produce(change(7, "c"))
    story.land()
    table.merge()
    list(maintain_landing(table.engine.pipeline))
    assert [b.number for b in story.engine.pipeline.intermediate.landed().batches] == [2]
    story.produce(*([delete, tombstone, insert] if known else [tombstone, insert]), change(2, "u", n=4))
    if known == "before it got the delete":
        monkeypatch.setattr("jobs.protocol.land_moved_rows", lambda *of: [table.merge(), land_moved_rows(*of)][1])
    if known == "once it can be read":
        with rows_away(catalog(table.engine.connections).require(table.name)):
            assert len(table.engine.land()) == 1
        assert open_count(table.engine.pipeline.intermediate) == 1
    table.engine.land()
    table.merge()
    values = ONE if known else {"body": None, "raw": None, "tags": []}
    assert {key: row for key, row in held(table).items() if key < 7} == {2: {"id": 2, **values, "n": 4}}
    assert table.stale() == (0 if known else 1)


# What makes it unknown which values a row has whose key is changed.
_MOVED = {key: moved(key, key + 1) for key in (0, 10, 20, 30, 40)}
UNKNOWN = {
    "no record names the old key": [change(0, "c", **ONE), *_MOVED[0][:2], replace(_MOVED[0][2], headers=())],
    "another key was deleted before it": [
        change(10, "c", **ONE), change(13, "c", **ONE), change(13, "d"), _MOVED[10][2],
    ],
    "no change of it brings the values": [change(20, "u", n=1), *_MOVED[20]],
    "a change of the old key is bad": [
        change(30, "c", **ONE), change(30, "u", body="lost", n=cast(int, "x")), *_MOVED[30],
    ],
    "the values are those of a deleted row": [
        change(40, "c", **ONE), change(40, "d"), change(40, "u", n=2), *_MOVED[40],
    ],
}  # fmt: skip


@FINDING
def test_changed_key_of_unknown_values_is_stale_until_it_is_sent(
    target: Target, new_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run to which nothing new has come does not look for the values."""
    story = debezium(new_story, partitions=len(UNKNOWN))
    table = story.table(target)
    by_partition = [replace(r, partition=n) for n, case in enumerate(UNKNOWN.values()) for r in case]
    new = [n * 10 + 1 for n in range(len(UNKNOWN))]
    found = []
    for sent in [
        by_partition,
        [change(key, "u", key // 10, n=2) for key in new],
        [change(key, "r", key // 10, **ONE, n=2) for key in new],
    ]:
        story.produce(*sent)
        story.land()
        table.merge()
        rows = held(table)
        found.append([rows[key]["body"] if key in rows else "none" for key in new])
    assert found == [["none"] * 5, [None] * 5, ["one"] * 5]
    with monkeypatch.context() as idle:
        idle.setattr("jobs.dead_letters.landing_again.land_again", lambda *_: pytest.fail("looks for them"))
        assert story.land() == []
    dead_letters = list(list_dead_letters(story.engine.pipeline, 100))
    assert sorted(dead_letter.kind for dead_letter in dead_letters) == [*["moved"] * 5, "type"]


def test_topic_of_dead_letters_gets_changed_keys(
    new_story: MakeStory, topic: Callable[..., str], services: Connections
) -> None:
    queue = topic("dlq")
    story = debezium(new_story).edited(dead_letters={"topic": queue})
    story.produce(moved(1, 2)[2])
    story.land()
    (sent,) = read_all(services, queue, 1)
    assert dict(sent.headers() or [])["__connect.errors.exception.class.name"] == b"moved"


@on_targets("append", "delete", can="keeps_unchanged_columns", always="append", shared=True)
def test_tables_with_a_row_a_change_get_null(target: Target, chapters: Story) -> None:
    table = chapters.table(target)
    table.merge()
    rows = sorted((row["n"], row["body"]) for row in table.select("id", "n", "body") if row["id"] == 1)
    assert rows[-2:] == [(5, None), (6, None)]
    if target.mode == "append":
        assert rows[:3] == [(1, "one"), (2, None), (3, None)]


@pytest.mark.slow
@FINDING
def test_changed_key_takes_what_the_table_had_whatever_was_read_again_since(
    target: Target, new_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the table knows the values, and it lacked a column then. Another row is read again before the insert. One of
    which nothing is known, though its delete is landed, is not looked for again."""
    story = debezium(new_story, maintenance=EAGER)
    narrow, wide = (story.reading({**COLUMNS, **more}) for more in ({"n": "int"}, {"note": "string"}))
    table, (delete, tombstone, insert) = story.table(target).under(narrow), moved(1, 2)
    for record in change(1, "c", **ONE), change(9, "c", n=2**40):
        narrow.produce(record)
        table.engine.land()
        table.merge()
    list(maintain_landing(table.engine.pipeline))
    table = table.under(wide)
    wide.produce(delete, tombstone)
    table.engine.land()
    table.merge()
    assert land_again(table.engine.pipeline)
    table.merge()
    assert (len(held(table)), [b.number for b in wide.engine.pipeline.intermediate.landed().batches]) == (1, [2, 3, 4])
    wide.produce(insert, *moved(3, 4))
    table.engine.land()
    table.merge()
    assert (table.stale(), held(table)[2]) == (1, {"id": 2, **ONE, "n": 0})
    wide.produce(*moved(5, 6)[:2])
    monkeypatch.setattr("jobs.dead_letters.landing_again.land_again", lambda *_: pytest.fail("looks for it"))
    assert len(table.engine.land()) == 1


@SLOW
@FINDING
def test_changed_keys_take_each_the_state_that_knows_them(target: Target, new_story: MakeStory) -> None:
    """Of rows that are looked for together one cannot be helped, and its delete is older. The other one's row was read
    again between the two deletes: what the table had before the older one says nothing of it any more."""
    story = debezium(new_story, maintenance=EAGER)
    narrow, wide = (story.reading({**COLUMNS, **more}) for more in ({"n": "int"}, {}))
    table = _merged_and_retired(story.table(target), narrow)
    helpless, other = moved(1, 11), moved(2, 12)
    narrow.produce(change(1, "u", n=cast(int, "x")), *helpless[:2])
    table.engine.land()
    table.merge()
    table = table.under(wide)
    table.engine.pipeline.intermediate.prepare()
    assert land_again(table.engine.pipeline)
    table.merge()
    wide.produce(helpless[2], *other)
    table.engine.land()
    table.merge()
    assert held(table) == {12: {"id": 12, **ONE, "n": 0}}


@pytest.mark.slow
@FINDING
def test_changed_key_is_looked_for_in_every_table(target: Target, new_story: MakeStory) -> None:
    """The pipeline's first table lacks what was read again of the row; the second one has it."""
    story = debezium(new_story, maintenance=EAGER)
    narrow, wide = (story.reading({**COLUMNS, **more}) for more in ({"n": "int"}, {}))
    behind = story.table(target).under(narrow)
    table = _merged_and_retired(story.table(target), narrow, behind).under(wide)
    table.engine.pipeline.intermediate.prepare()
    assert land_again(table.engine.pipeline)
    table.merge()
    wide.produce(*moved(2, 12))
    wide.edited(tables=[behind.entry, table.entry]).land()
    table.merge()
    assert held(table)[12] == {"id": 12, **ONE, "n": 0}


@pytest.mark.slow
@FINDING
def test_table_that_began_later_says_nothing_of_what_was_before(target: Target, new_story: MakeStory) -> None:
    """Its row of the old key is from a change that left the value out. The other table has the value, and is behind."""
    story = debezium(new_story, maintenance=EAGER)
    narrow, wide = (story.reading({**COLUMNS, **more}) for more in ({"n": "int"}, {}))
    table = _merged_and_retired(story.table(target), narrow)
    late = story.table(target).under(narrow)
    reset_offsets(narrow.edited(tables=[late.entry, table.entry]).engine.pipeline)
    table.merge()
    late.merge()
    table, late = table.under(wide), late.under(wide)
    table.engine.pipeline.intermediate.prepare()
    assert land_again(table.engine.pipeline)
    late.merge()
    assert held(late)[2]["body"] is None
    wide.produce(*moved(2, 12))
    both = wide.edited(tables=[late.entry, table.entry])
    both.land()
    assert open_count(both.engine.pipeline.intermediate) == 1
    table.merge()
    both.land()
    table.merge()
    assert held(table)[12] == {"id": 12, **ONE, "n": 0}


@SLOW
@FINDING
def test_table_that_skipped_batches_says_nothing(target: Target, new_story: MakeStory) -> None:
    """It was taken out of the file, and is put back when retention has removed the next batch. The other has all."""
    story = debezium(new_story, maintenance=EAGER)
    table, other = (story.table(target) for _ in range(2))
    for record in change(1, "c", **{**ONE, "body": "old"}), change(1, "u", **ONE), change(2, "c", **ONE):
        story.produce(record)
        other.engine.land()
        other.merge()
        if table.destination.committed() is None:
            table.merge()
    list(maintain_landing(other.engine.pipeline))
    both = story.edited(tables=[table.entry, other.entry])
    reset_offsets(both.engine.pipeline)
    for one in (table, other):
        one.merge()
    both.produce(*moved(1, 11))
    both.land()
    other.merge()
    assert held(other)[11] == {"id": 11, **ONE, "n": 0}


@pytest.mark.slow
@FINDING
def test_table_that_was_taken_over_says_what_it_had(target: Target, new_story: MakeStory) -> None:
    """The pipeline that has it now has landed nothing of the row."""
    story = debezium(new_story)
    table = story.table(target)
    story.produce(change(1, "c", **ONE))
    table.engine.land()
    table.merge()
    renamed = table.as_another_pipeline()
    pipeline = renamed.engine.pipeline
    plan_take_over(pipeline, table.engine.flow.name).carry_out(pipeline)
    for records in [change(2, "c", **ONE)], moved(1, 11):
        renamed.story.produce(*records)
        renamed.engine.land()
        renamed.merge()
    assert held(renamed)[11] == {"id": 11, **ONE, "n": 0}


def _merged_and_retired(table: TableUnderTest, story: Story, *others: TableUnderTest) -> TableUnderTest:
    """Two rows whose values only the table has; of one an update is a dead letter that a wider column can read."""
    table = table.under(story)
    for records in [change(1, "c", **ONE), change(2, "c", **ONE)], [change(2, "u", n=2**40)]:
        story.produce(*records)
        table.engine.land()
        for one in (table, *others):
            one.merge()
    list(maintain_landing(table.engine.pipeline))
    assert [b.number for b in story.engine.pipeline.intermediate.landed().batches] == [2]
    return table

"""Columns come and widen between runs; what no rule allows is refused before anything is written."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from jobs import failpoints
from jobs.dead_letters.retry import retry
from jobs.destinations.registry import kinds
from jobs.spec.changes import Key
from resources.errors import ConfigurationError, SchemaRefused
from tests.destinations.conftest import MakeStory
from tests.kit import model
from tests.kit.command import Command
from tests.kit.interrupting import die_at_each
from tests.kit.records import COLUMNS, Record, put
from tests.kit.story import Story, TableUnderTest, Target, on_targets

FIRST = {**COLUMNS, "size": "int", "price": "decimal(5,2)"}
WIDER = {**COLUMNS, "size": "long", "price": "decimal(9,2)", "extra": "date"}


@pytest.fixture(scope="module")
def stories(new_story: MakeStory) -> list[Story]:
    """The pipeline with the columns of before, of then and of now; two batches with the first, one with each other."""
    first = new_story(columns=FIRST)
    wider, fewer = first.reading(WIDER), first.reading(COLUMNS)
    first.produce(put(1, size=1, price="1.25"))
    first.land()
    first.produce(put(2, size=2, price="2.50"))
    first.land()
    wider.produce(put(1, size=2**40, price="1234567.25", extra="2026-01-01"))
    wider.land()
    fewer.produce(put(3, size="is not looked at any more"))
    fewer.land()
    return [first, wider, fewer]


def seen(table: TableUnderTest) -> list[tuple[object, ...]]:
    rows = table.select("id", "size", "price", "extra")
    found = [(row["id"], row["size"], row["price"], row["extra"]) for row in rows]
    return sorted(found, key=lambda row: (row[0], row[1] or 0))


NEW = [(1, 2**40, Decimal("1234567.25"), date(2026, 1, 1)), (2, 2, Decimal("2.50"), None)]


@on_targets(always="upsert_delete")
def test_columns_come_widen_and_go_between_runs(target: Target, stories: list[Story]) -> None:
    first, wider, fewer = stories
    table = first.table(target)
    table.merge_some(1)
    # The second batch was landed with the columns of before, and is merged with those of now.
    table.under(wider).merge_some(2)
    now = table.under(fewer)
    now.merge()
    old = [(1, 1, Decimal("1.25"), None)] if target.mode in ("append", "delete") else []
    expected = [*old, *NEW, (3, None, None, None)]
    assert seen(now) == expected
    assert now.replay(1, 4), "all of it, with the columns of today"
    if target.mode in ("append", "delete"):
        assert seen(now) == expected
    assert [row[0] for row in now.rows()] == [row[0] for row in expected]


STOPS = "array<struct<at: string, fax: string>>"


@pytest.fixture(scope="module")
def nested(new_story: MakeStory) -> list[Story]:
    """The pipeline with nested fields, and with fewer of them; a batch with each."""
    first = new_story(columns={**COLUMNS, "place": "struct<city: string, fax: string>", "stops": STOPS})
    fewer = first.reading({**COLUMNS, "place": "struct<city: string>", "stops": "array<struct<at: string>>"})
    first.produce(put(1, place={"city": "c1", "fax": "f"}, stops=[{"at": "s", "fax": "f"}]), put(2, place={}, stops=[]))
    first.land()
    fewer.produce(put(1, "b", place={"city": "c2", "fax": "g"}, stops=[]), put(3, place={"city": "c3"}, stops=[{}]))
    fewer.land()
    return [first, fewer]


@on_targets(ways=True, always="iceberg-append upsert_delete")
def test_nested_fields_that_are_no_longer_declared_stop_no_table(target: Target, nested: list[Story]) -> None:
    """The landing keeps them for good, and so does a table that was made before; one that is made now lacks them."""
    first, fewer = nested
    for layout in target.kind.layouts:
        old, new = first.table(target, **layout), fewer.table(target, **layout)
        old.merge_some(1)
        for table in (old.under(fewer), new):
            table.merge()
            for _ in range(2):
                assert table.rows() == model.expected(fewer.records, target.mode)
                assert any("c3" in str(row["place"]) for row in table.select("place"))
                assert table.verify().wrong == []
                assert table.replay(1, 2)


@on_targets(always="append")
def test_change_that_no_rule_allows_is_refused_before_anything_is_written(target: Target, stories: list[Story]) -> None:
    first, wider, _ = stories
    table = first.table(target)
    table.merge_some(2)
    before, state = table.rows(), table.destination.committed()
    forbidden = first.reading({**FIRST, "price": "string"})
    with pytest.raises(SchemaRefused, match=r"price is decimal\(\S+\) in the table and string in the file") as caught:
        table.under(forbidden).destination.prepare()
    assert table.name in str(caught.value)
    landed = table.engine.pipeline.intermediate.committed()
    with pytest.raises(SchemaRefused, match="price is decimal"):
        forbidden.land()
    assert table.engine.pipeline.intermediate.committed() == landed
    strict = table.under(wider, evolve={"add_columns": False})
    for dry_run in (True, False):
        with pytest.raises(SchemaRefused, match="extra"):
            strict.destination.prepare(dry_run)
    assert (table.rows(), table.destination.committed()) == (before, state)
    assert "extra" not in table.destination.read(lambda: table.engine.spark).present()


@pytest.fixture(scope="module")
def open_stories(new_story: MakeStory) -> Story:
    """A pipeline whose records bring columns: three batches, the second with new fields, the third with odd ones."""
    story = new_story(columns={**COLUMNS, "part": "struct<x: long>"})
    story = Story(story.engine.with_value(unknown_fields="add"))
    story.produce(put(1, part={"x": 1}))
    story.land()
    story.produce(put(1, part={"x": 2, "y": "deep"}, size=7, note="n"), put(2, part={}, note=5, size=2**40))
    # The run dies at every boundary, also where the table has the columns and the batch is not there yet.
    assert failpoints.NEW_COLUMNS in die_at_each(story.land)
    story.produce(put(3, size="is no number"), put(4, part={}, note={"any": [1.50]}), put(5, Name="a clash"))
    story.land()
    return story


@on_targets(always="upsert_delete", shared=True)
def test_fields_that_no_column_takes_become_columns_while_the_batch_is_landed(
    target: Target, open_stories: Story
) -> None:
    table = open_stories.table(target)
    # The first batch is merged by a run that knows of no new column.
    table.merge_some(1)
    table.merge()

    def rows() -> list[tuple[object, ...]]:
        found = [(r["id"], r["size"], r["note"]) for r in table.select("id", "size", "note")]
        return sorted(found, key=lambda row: (row[0], row[1] or 0))

    old = [(1, None, None)] if target.mode in ("append", "delete") else []
    expected = [*old, (1, 7, "n"), (2, 2**40, "5"), (4, None, '{"any":[1.5]}')]
    assert rows() == expected
    assert any("deep" in str(row["part"]) for row in table.select("id", "part") if row["id"] == 1)
    table.replay(1, 3)
    assert rows() == expected
    dead_letters = [b.counts.quarantined for b in table.engine.pipeline.intermediate.landed().batches]
    assert dead_letters == [0, 0, 2], "a value that does not fit its column, and a name that can be none"


@pytest.fixture(scope="module")
def undeclared(new_story: MakeStory) -> Story:
    """A pipeline whose file declares no column, nor the key: the first batch has no row that could bring a column."""
    story = new_story()
    story = story.reading({}, value={"format": "json"}, key={"format": "json"}).edited(changes={})
    story.produce(Record(0, 1, None), Record(0, 2, "no JSON"))
    story.land()
    story.produce(put(1), put(2, more=5), put(3))
    story.land()
    story.produce(Record(0, 3, None), put(1, later=True))
    story.land()
    return story


@on_targets(always="append", shared=True)
def test_columns_may_be_left_to_the_records(target: Target, undeclared: Story) -> None:
    table = undeclared.table(target)
    table.merge()
    assert table.rows() == model.expected(undeclared.records, target.mode)
    assert any(row["later"] for row in table.select("id", "later"))
    assert undeclared.engine.pipeline.spec.source.value.columns.keys() == {
        "amount",
        "id",
        "name",
        "op",
        "more",
        "later",
    }
    assert undeclared.engine.pipeline.spec.changes.key == Key(columns=["id"])


THERE = {**COLUMNS, "price": "double", "cents": "decimal(12,2)", "note": "string", "need": "long not null"}


@on_targets("append", "upsert_delete", always="append")
def test_table_that_is_there_says_what_its_columns_are(target: Target, new_story: MakeStory) -> None:
    """Records bring other types than it has: whole numbers, and a number where it has text."""
    story = new_story()
    made = story.reading(THERE).table(target)
    made.destination.prepare()
    story = story.reading({}, value={"format": "json"}, key={"format": "json"}).edited(changes={})
    table = made.under(story)
    requires = not made.destination.takes(["need"])["need"].nullable  # not every system can
    story.produce(
        put(1, price=5, cents=7, note=7, need=1), put(2, price=6.5, cents=8, note="x", need=2), put(3, price=1)
    )
    table.engine.land()
    story.produce(put(4, price=0.25, cents=1.25, note={"a": 1}, need=3, more=1), put(5, cents="no number", need=4))
    table.engine.land()
    table.merge()
    rows = sorted(table.select("id", "price", "cents", "note", "need"), key=lambda row: str(row["id"]))
    assert [(r["id"], r["price"], r["cents"], r["note"], r["need"]) for r in rows] == [
        (1, 5.0, Decimal(7), "7", 1),
        (2, 6.5, Decimal(8), "x", 2),
        *([] if requires else [(3, 1.0, None, None, None)]),
        (4, 0.25, Decimal("1.25"), '{"a":1}', 3),
    ]
    first, second = table.engine.pipeline.intermediate.landed().batches
    assert (first.counts.quarantined, second.counts.quarantined) == (requires, 1)
    columns = table.engine.pipeline.spec.source.value.columns
    assert columns["price"] == "double"
    assert columns["need"] == ("long not null" if requires else "long")


@pytest.mark.parametrize("kind", [pytest.param("int", marks=pytest.mark.slow), "decimal(12,0) not null"])
@on_targets("append", "upsert_delete", always="upsert_delete", shared=True)
def test_table_that_is_there_says_what_its_key_is(target: Target, kind: str, new_story: MakeStory) -> None:
    """It is narrower, or wider, than the keys of records are taken for."""
    story = new_story()
    declared = {"format": "json", "columns": {"id": kind}}
    made = story.reading({**COLUMNS, "id": kind}, key=declared).table(target)
    made.destination.prepare()
    there = made.destination.takes(["id"])["id"].type
    story = story.reading({}, value={"format": "json"}, key={"format": "json"}).edited(changes={})
    table = made.under(story)
    story.produce(put(1), put(2), put(1, name="newer"), Record(0, 3, "no JSON"))
    table.engine.land()
    table.merge()
    found = {row["id"]: row["name"] for row in table.select("id", "name")}
    assert found == {1: "newer", 2: found[2]}
    story.produce(Record(0, 2, None))
    table.engine.land()
    table.merge()
    assert len(table.select("id")) == (3 if target.mode == "append" else 1)
    assert made.destination.takes(["id"])["id"].type == there
    assert table.replay(1, 2)
    assert len(table.select("id")) == (3 if target.mode == "append" else 1)


@on_targets("upsert_delete")
def test_key_that_a_table_cannot_have_is_refused_before_anything_is_landed(
    target: Target, new_story: MakeStory
) -> None:
    story = new_story()
    declared = {"format": "json", "columns": {"id": "string"}}
    made = story.reading({**COLUMNS, "id": "string"}, key=declared).table(target)
    made.destination.prepare()
    open_ = story.reading({}, value={"format": "json"}, key={"format": "json"}).edited(changes={})
    story.produce(put(1))
    with pytest.raises(ConfigurationError, match=r"do not fit the tables .* key is id string.*: ") as caught:
        made.under(open_).engine.land()
    assert "source.key.columns" in (caught.value.remedy or "")
    assert made.engine.pipeline.intermediate.landed().batches == []


METADATA = [
    "topic",
    "partition",
    "offset",
    "key",
    "headers",
    "header:trace-id",
    "header:n as nth",
    "record as origin",
]


@pytest.fixture(scope="module")
def with_headers(new_story: MakeStory) -> Story:
    story = new_story()
    asking = {"kind": "iceberg", "table": "tests.asks", "mode": "append", "metadata_columns": METADATA}
    story.produce(put(1))
    story.land()
    story.produce(put(2), put(3), headers=[("trace-id", b"t-1"), ("n", b"1"), ("n", b"2")])
    story.edited(tables=[asking]).land()
    return story


@on_targets(always="upsert_delete", shared=True)
def test_key_and_headers_are_columns_where_they_are_asked_for(target: Target, with_headers: Story) -> None:
    structs = kinds()[target.kind.name].capabilities.nullable_nested
    table = with_headers.table(target, metadata_columns=METADATA if structs else METADATA[:-1])
    table.merge()
    columns = ("id", "_key", "_headers", "_header_trace_id", "nth")
    known = sorted(tuple(row[c] for c in columns) for row in table.select(*columns))
    text = '{"trace-id": "t-1", "n": ["1", "2"]}'
    # The first batch was landed when nobody had asked.
    assert known == [
        (1, None, None, None, None),
        (2, '{"id": 2}', text, "t-1", "2"),
        (3, '{"id": 3}', text, "t-1", "2"),
    ]
    if structs:
        assert sum(with_headers.engine.flow.topic in str(row["origin"]) for row in table.select("origin")) == 2


@on_targets(always="iceberg-upsert_delete")
def test_field_that_changes_its_type_is_a_dead_letter_until_it_has_another_column(
    target: Target, new_story: MakeStory, batchmerge: Command
) -> None:
    story = new_story().reading({}, value={"format": "json"}, key={"format": "json"}).edited(changes={})
    story.produce(put(1, price=5))
    story.land()
    story.produce(put(2, price="12 EUR"), put(3, price=7))
    (landed,) = story.land()
    assert (landed.counts.landed, landed.counts.quarantined) == (1, 1)
    table = story.table(target)
    table.merge()
    code, output = batchmerge(story.engine, "dead-letters", "list", "")
    assert (code, "source.value.rename" in output) == (0, True), output
    value = {"format": "json", "rename": {"price": "price_text"}}
    renamed = story.reading({}, value=value, key={"format": "json"})
    now = table.under(renamed)
    assert retry(now.engine.pipeline).recovered == 0, "no batch has brought the column yet"
    story.produce(put(4, price="9 EUR"))
    now.engine.land()
    assert retry(now.engine.pipeline).recovered == 1
    now.merge()
    found = {row["id"]: (row["price"], row["price_text"]) for row in now.select("id", "price", "price_text")}
    assert found == {1: (5, None), 2: (None, "12 EUR"), 3: (7, None), 4: (None, "9 EUR")}

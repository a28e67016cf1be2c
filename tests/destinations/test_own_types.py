"""`uuid`, `time` and `fixed(n)`: landed as text and bytes, and of types of their own in the tables."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, time, timedelta
from typing import Any
from uuid import UUID

import pytest

from jobs.maintenance.run import maintain_table
from tests.destinations.conftest import MakeStory
from tests.destinations.test_keys import key_of
from tests.kit.records import COLUMNS, Record, put
from tests.kit.story import Story, TableUnderTest, Target, on_targets

OWN = {**COLUMNS, "ref": "uuid", "opens": "time", "code": "fixed(4)"}
REFS = [str(UUID(int=n * 0x1F0C4045CB311E7907BA6006AD3DBA0 % 2**128)) for n in range(10)]


def own(key: int, name: str, op: str = "u", n: int | None = None, ref: str | None = None) -> Record:
    """With the values of number `n`."""
    n = key if n is None else n
    at: dict[str, Any] = {
        "ref": ref or REFS[n].upper(),
        "opens": f"08:0{n}:00.{n}",
        "code": b64encode(code(n)).decode(),
    }
    return put(key, name, op, **at)


def taken(table: TableUnderTest) -> list[tuple[object, bool]]:
    """What the table's columns are, for records."""
    found = table.destination.takes(["ref", "code"])
    return [(found[name].type, found[name].nullable) for name in ("ref", "code")]


def code(n: int) -> bytes:
    return bytes([n, 0, 255, 0])


def read(table: TableUnderTest) -> list[tuple[object, ...]]:
    rows = table.select("id", "name", "ref", "opens", "code")
    return sorted((r["id"], r["name"], *map(plain, (r["ref"], r["opens"], r["code"]))) for r in rows)


def plain(value: Any) -> object:
    """A value as the client of any of the systems gives it."""
    match value:
        case UUID():
            return str(value)
        case timedelta():
            return (datetime.min + value).time()
        case str() if ":" in value:
            return time.fromisoformat(value)
    return value


def expected(key: int, name: str, n: int | None = None) -> tuple[object, ...]:
    n = key if n is None else n
    return key, name, REFS[n], time(8, n, 0, n * 100_000), code(n)


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    first = [own(1, "a", "c"), own(2, "b", "c"), own(3, "c", "c"), put(4, "none", "c")]
    bad = put(9, "bad", "c", ref="no uuid")
    return new_story().reading(OWN).land_each([[*first, bad], [own(1, "aa", n=5), own(2, "b", "d"), own(6, "f", "c")]])


@on_targets("append", "upsert", "upsert_delete", always="append upsert_delete", ways=True)
def test_values_are_those_of_the_records(target: Target, story: Story) -> None:
    table = story.table(target)
    table.merge_some(1)
    table.merge()
    rows = [expected(1, "aa", 5), expected(2, "b"), expected(3, "c"), (4, "none", None, None, None), expected(6, "f")]
    wanted = {
        "append": [expected(1, "a"), *rows],
        "upsert": rows,
        "upsert_delete": [row for row in rows if row[0] != 2],
    }[target.mode]
    assert read(table) == sorted(wanted, key=lambda row: row[:2])
    verdict = table.verify()
    assert (verdict.wrong, verdict.compared) == ([], len(wanted))
    table.remove(below=3)
    assert table.verify().wrong
    assert table.replay(1, 2)
    assert read(table) == sorted(wanted, key=lambda row: row[:2])
    assert table.merge() is None
    assert table.destination.prepare(dry_run=True) == []


@pytest.fixture(scope="module")
def keyed(new_story: MakeStory) -> Story:
    story = new_story(columns=OWN, changes=key_of("ref", "code"))
    first = [own(n, "old", "c") for n in range(8)]
    return story.land_each([first, [own(0, "new", n=0), own(1, "gone", "d"), own(8, "more", "c"), own(0, "newer")]])


@on_targets("upsert", "upsert_delete", "delete", always="upsert_delete", ways=True)
def test_rows_are_identified_by_them(target: Target, keyed: Story) -> None:
    table = keyed.table(target)
    table.merge_some(1)
    table.merge()
    replaced = [expected(0, "newer"), expected(8, "more")]
    kept = [expected(n, "old") for n in range(2, 8)]
    wanted = {
        "upsert": [*replaced, expected(1, "old"), *kept],
        "upsert_delete": [*replaced, *kept],
        "delete": [expected(0, "new"), expected(0, "newer"), expected(0, "old"), expected(8, "more"), *kept],
    }[target.mode]
    assert read(table) == sorted(wanted, key=lambda row: row[:2])
    assert not table.verify().wrong
    assert table.replay(1, 2)
    assert read(table) == sorted(wanted, key=lambda row: row[:2])


@on_targets("append", "upsert_delete", always="upsert_delete", shared=True)
def test_layout_by_them_makes_no_difference(target: Target, keyed: Story) -> None:
    wanted = [expected(0, "newer"), *(expected(n, "old") for n in range(2, 8)), expected(8, "more")]
    if target.mode == "append":
        wanted += [expected(0, "new"), expected(0, "old"), expected(1, "old")]
    for layout in target.kind.layouts_by_ref:
        table = keyed.table(target, **layout)
        table.merge_some(1)
        table.merge()
        assert read(table) == sorted(wanted, key=lambda row: row[:2]), layout
        pipeline = table.engine.edited(maintenance={"compaction": {"min_input_files": 2}}).pipeline
        done = list(maintain_table(pipeline, pipeline.destinations()[0]))
        assert [str(d) for d in done if d.problem] == []
        assert read(table) == sorted(wanted, key=lambda row: row[:2]), layout
        assert not table.verify().wrong


@on_targets("append", "upsert_delete", always="append")
def test_table_that_is_there_says_that_text_is_of_a_form(target: Target, new_story: MakeStory) -> None:
    """Columns are left to the records."""
    story = new_story()
    made = story.reading(OWN).table(target)
    made.destination.prepare()
    there = taken(made)
    story = story.reading({}, value={"format": "json"}, key={"format": "json"}).edited(changes={})
    table = made.under(story)
    # A system without such a type keeps text as it is.
    story.produce(own(1, "a", ref=REFS[1]), put(2, "b", ref="no uuid", code="abcd"), put(3, "none"))
    table.engine.land()
    table.merge()
    story.produce(own(4, "d", ref=REFS[4]))
    table.engine.land()
    table.merge()
    assert [row for row in read(table) if row[0] != 2] == [
        expected(1, "a"),
        (3, "none", None, None, None),
        expected(4, "d"),
    ]
    assert taken(made) == there

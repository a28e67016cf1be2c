"""One bad record has one fate in tables of every kind; a dead letter that is mended takes its place everywhere."""

from __future__ import annotations

import pytest

from jobs.dead_letters.listing import letters, summary
from jobs.dead_letters.retry import Retried, retry
from resources.errors import BadRecords
from tests.destinations.conftest import MakeStory
from tests.kit.kind import KindUnderTest
from tests.kit.kinds import KINDS, runnable
from tests.kit.letters import LARGE, put
from tests.kit.model import Row
from tests.kit.records import COLUMNS, Record
from tests.kit.story import TableUnderTest, Target, targets

# ---- dead letters that are tried again ------------------------------------------------------------------------------

NARROW = {**COLUMNS, "amount": "int"}
EXPECTED: dict[str, list[Row]] = {
    "append": [(1, "first", 1), (1, "large", LARGE), (1, "newer", 1), (2, "large", LARGE), (3, "large", LARGE)],
    "upsert_delete": [(1, "newer", 1), (3, "large", LARGE)],
}
TARGETS = targets(*EXPECTED)


@pytest.fixture(scope="module")
def mended(new_story: MakeStory) -> tuple[dict[str, TableUnderTest], list[Retried]]:
    """A pipeline with a table of every target, whose dead letters were tried again twice with a mended file."""
    wide = new_story(columns={**COLUMNS, "amount": "long"})
    narrow = wide.reading(NARROW)
    narrow.tell(put(1, "first"), *(put(key, "large", amount=LARGE) for key in (1, 2, 3)))
    narrow.land()
    # Newer than two of the letters; the third key has nothing newer.
    narrow.tell(put(1, "newer"), put(2, "gone", op="d"), Record(0, 4, "{bad for ever"))
    narrow.land()
    tables = {str(target): narrow.table(target) for target in TARGETS if runnable(target.kind)}
    for table in tables.values():
        table.merge()
    pipeline = wide.engine.edited(tables=[table.entry for table in tables.values()]).pipeline
    done = [retry(pipeline) for _ in range(2)]
    return {name: table.under(wide) for name, table in tables.items()}, done


def test_dead_letters_are_mended_once(mended: tuple[dict[str, TableUnderTest], list[Retried]]) -> None:
    tables, (first, again) = mended
    assert (first.tried, first.recovered, [letter.offset for letter in first.stay]) == (4, 3, [6])
    assert set(first.replayed) == {table.destination.name for table in tables.values()}
    assert (again.tried, again.recovered, again.replayed) == (1, 0, {})
    pipeline = next(iter(tables.values())).engine.pipeline
    assert [(b.counts.landed, b.counts.quarantined) for b in pipeline.intermediate.landed().batches] == [(4, 0), (2, 1)]
    assert [letter.offset for letter in letters(pipeline, 10)] == [6]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_mended_letters_take_their_place(
    target: Target, mended: tuple[dict[str, TableUnderTest], list[Retried]]
) -> None:
    table = mended[0][str(target)]
    assert table.rows() == EXPECTED[target.mode]
    assert table.merge() is None
    assert table.replay(1, 2)
    assert table.rows() == EXPECTED[target.mode]


# ---- rows that only this table cannot hold --------------------------------------------------------------------------

# Reviews call it C13: what is landed follows `on_bad_record`, what only one table refuses does not everywhere yet.
OPEN = {
    ("bigquery", "quarantine"): "BigQuery has no side table: a null in an array stops the table",
    ("bigquery", "skip"): "BigQuery has no side table: a null in an array stops the table",
    ("clickhouse", "skip"): "ClickHouse keeps the row in its side table",
}


def unfit_kinds(policy: str) -> pytest.MarkDecorator:
    """The kinds that cannot hold each row that can be landed."""
    kinds = [kind for kind in KINDS.values() if kind.unrepresentable]

    def open_(kind: KindUnderTest) -> tuple[pytest.MarkDecorator, ...]:
        reason = OPEN.get((kind.name, policy))
        return (pytest.mark.xfail(reason=reason, strict=True),) if reason else ()

    return pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name, marks=open_(kind)) for kind in kinds])


def unfit(kind: KindUnderTest, policy: str, new_story: MakeStory) -> TableUnderTest:
    """A table with one row (1), for which 2, that it cannot hold, and 3, that it can, are landed."""
    assert kind.unrepresentable
    type_, value = kind.unrepresentable
    story = new_story(columns={**COLUMNS, "odd": type_}, on_bad_record=policy)
    table = story.table(Target(kind, "upsert"))
    story.tell(_odd(1, None if type_ == "date" else []))
    story.land()
    table.merge()
    story.tell(_odd(2, value), _odd(3, None if type_ == "date" else []))
    (landed,) = story.land()
    assert (landed.counts.landed, landed.counts.quarantined) == (2, 0)
    return table


def _odd(key: int, odd: object) -> Record:
    return Record(0, key, {"id": key, "name": "a", "amount": 1.0, "op": "u", "odd": odd})


@unfit_kinds("quarantine")
def test_row_that_a_table_cannot_hold_is_quarantined(kind: KindUnderTest, new_story: MakeStory) -> None:
    table = unfit(kind, "quarantine", new_story)
    assert table.merge()
    assert [row[0] for row in table.rows()] == [1, 3]
    (group,) = summary(table.engine.pipeline)
    assert (group.records, group.stage, group.first) == (1, table.destination.name, f"{table.engine.flow.topic}-0@1")


@unfit_kinds("fail")
def test_row_that_a_table_cannot_hold_fails_the_merge_where_the_file_says_so(
    kind: KindUnderTest, new_story: MakeStory
) -> None:
    table = unfit(kind, "fail", new_story)
    state = table.destination.committed()
    with pytest.raises(BadRecords, match="odd") as caught:
        table.merge()
    assert table.destination.name in str(caught.value)
    assert caught.value.remedy
    assert [row[0] for row in table.rows()] == [1]
    assert table.destination.committed() == state


@unfit_kinds("skip")
def test_row_that_a_table_cannot_hold_is_counted_only_where_the_file_says_so(
    kind: KindUnderTest, new_story: MakeStory
) -> None:
    table = unfit(kind, "skip", new_story)
    assert table.merge()
    assert [row[0] for row in table.rows()] == [1, 3]
    assert summary(table.engine.pipeline) == []

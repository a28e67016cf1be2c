"""A bad record is treated the same by tables of every kind; a recovered dead letter takes its place in all of them."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

import pytest

from jobs.dead_letters.listing import list_dead_letters, summary
from jobs.dead_letters.refused import retry_refused
from jobs.dead_letters.retry import Retried, retry
from resources.errors import BadRecords
from tests.destinations.conftest import MakeStory
from tests.kit.dead_letters import LARGE, read_all
from tests.kit.interrupting import dying_at
from tests.kit.kind import KindUnderTest
from tests.kit.kinds import KINDS
from tests.kit.model import Row
from tests.kit.records import COLUMNS, Record, put
from tests.kit.story import TableUnderTest, Target, asked_for, on_targets

# ---- dead letters that are tried again ------------------------------------------------------------------------------

NARROW = {**COLUMNS, "amount": "int"}
EXPECTED: dict[str, list[Row]] = {
    "append": [(1, "first", 1), (1, "large", LARGE), (1, "newer", 1), (2, "large", LARGE), (3, "large", LARGE)],
    "upsert": [(1, "newer", 1), (2, "large", LARGE), (3, "large", LARGE)],
    "upsert_delete": [(1, "newer", 1), (3, "large", LARGE)],
    "delete": [(1, "first", 1), (1, "large", LARGE), (1, "newer", 1), (3, "large", LARGE)],
}
# Before the dead letters are recovered: two of them have something newer, and a row of its own is never stale. The one
# that can never be read counts too, as its key can.
STALE = {"append": 0, "upsert": 3, "upsert_delete": 2, "delete": 0}


@dataclass(frozen=True)
class Recovered:
    """Tables whose pipeline's dead letters were tried again twice; how many stale keys each had before that."""

    tables: dict[str, TableUnderTest]
    done: list[Retried]
    stale: dict[str, int]


@pytest.fixture(scope="module")
def recovered(new_story: MakeStory, request: pytest.FixtureRequest) -> Recovered:
    """A pipeline with a table of every target, whose dead letters were tried again twice with a corrected file."""
    wide = new_story(columns={**COLUMNS, "amount": "long"})
    narrow = wide.reading(NARROW)
    narrow.produce(put(1, "first"), *(put(key, "large", amount=LARGE) for key in (1, 2, 3)))
    narrow.land()
    # Newer than two of the dead letters; the third key has nothing newer.
    narrow.produce(put(1, "newer"), put(2, "gone", op="d"), Record(0, 4, "{bad for ever"))
    narrow.land()
    tables = {str(target): narrow.table(target) for target in asked_for(request, "recovered")}
    for table in tables.values():
        table.merge()
    stale = {name: table.stale() for name, table in tables.items()}
    pipeline = wide.engine.edited(tables=[table.entry for table in tables.values()]).pipeline
    done = [retry(pipeline) for _ in range(2)]
    return Recovered({name: table.under(wide) for name, table in tables.items()}, done, stale)


def test_dead_letters_are_recovered_once(recovered: Recovered) -> None:
    tables, (first, again) = recovered.tables, recovered.done
    assert (first.tried, first.recovered, [dead_letter.offset for dead_letter in first.stay]) == (4, 3, [6])
    assert set(first.applied.merged) == {table.destination.name for table in tables.values()}
    assert (again.tried, again.recovered, set(again.applied.merged.values())) == (1, 0, {None})
    pipeline = next(iter(tables.values())).engine.pipeline
    landed = pipeline.intermediate.landed().batches
    assert [(b.counts.landed, b.counts.quarantined, b.counts.recovered) for b in landed] == [
        (1, 3, 0),
        (2, 1, 0),
        (3, 0, 3),
    ], "nothing landed is rewritten"
    assert [dead_letter.offset for dead_letter in list_dead_letters(pipeline, 10)] == [6]


@on_targets(always="upsert_delete", shared=True)
def test_recovered_dead_letters_take_their_place(target: Target, recovered: Recovered) -> None:
    table = recovered.tables[str(target)]
    assert table.rows() == EXPECTED[target.mode]
    assert (recovered.stale[str(target)], table.stale()) == (STALE[target.mode], min(STALE[target.mode], 1))
    assert table.merge() is None
    assert table.replay(1, 2)
    assert table.rows() == EXPECTED[target.mode]


# ---- rows that only this table cannot hold --------------------------------------------------------------------------

REFUSING = [kind for kind in KINDS.values() if kind.unrepresentable]
first, *others = REFUSING
every_unfit_kind = pytest.mark.parametrize("kind", REFUSING, ids=[kind.name for kind in REFUSING])
# What is done about refused rows is the same for all.
one_unfit_kind = pytest.mark.parametrize(
    "kind",
    [first, *(pytest.param(kind, marks=pytest.mark.slow) for kind in others)],
    ids=[kind.name for kind in REFUSING],
)


def unfit(kind: KindUnderTest, policy: str, new_story: MakeStory, **parts: object) -> TableUnderTest:
    """A table with one row (1), for which 2, that it cannot hold, and 3, that it can, are landed."""
    story = new_story(columns=kind.odd_columns, on_bad_record=policy, **parts)
    table = story.table(Target(kind, "upsert"))
    story.produce(put(1, odd=None))
    story.land()
    table.merge()
    story.produce(kind.odd(2), put(3, odd=None))
    (landed,) = story.land()
    assert (landed.counts.landed, landed.counts.quarantined) == (2, 0)
    return table


def _keys(table: TableUnderTest) -> list[object]:
    return [row[0] for row in table.rows()]


def test_kinds_say_whether_they_refuse_rows() -> None:
    assert {kind.name for kind in KINDS.values() if kind.capabilities.refuses} == {
        kind.name for kind in KINDS.values() if kind.unrepresentable
    }


@every_unfit_kind
def test_row_that_a_table_cannot_hold_is_quarantined_until_its_file_is_corrected(
    kind: KindUnderTest, new_story: MakeStory
) -> None:
    queue = f"dlq-{uuid.uuid4().hex}"
    table = unfit(kind, "quarantine", new_story, dead_letters={"topic": queue})
    merged = table.merge()
    assert merged
    assert merged.merged.counts.refused == 1
    assert table.merge() is None
    assert _keys(table) == [1, 3]
    (group,) = summary(table.engine.pipeline)
    assert (group.records, group.stage, group.first) == (1, table.destination.name, f"{table.engine.flow.topic}-0@1")
    (dead_letter,) = table.destination.dead_letters(10, values=True)
    assert (dead_letter.batch, dead_letter.key) == (2, b'{"id": 2}')
    assert json.loads(dead_letter.value or b"")["name"] == "odd"
    # As long as it does not fit it stays what it is, however often it is tried.
    assert retry_refused(table.engine.pipeline)[table.destination.name].stay == 1
    verdict = table.verify()
    assert (verdict.wrong, verdict.refused, table.destination.refused()) == ([], 1, {2: 1})
    accepting = table.under(table.story, **kind.accepting)
    done = retry_refused(accepting.engine.pipeline)[table.destination.name]
    assert (done.tried, done.stay, done.problem) == (1, 0, None)
    (sent,) = read_all(table.engine.connections, queue, 1)
    assert (sent.key(), sent.value()) == (dead_letter.key, dead_letter.value), "once, however often it was tried"
    assert dict(sent.headers() or [])["__connect.errors.offset"] == b"1"
    assert _keys(accepting) == [1, 2, 3]
    assert (summary(accepting.engine.pipeline), accepting.destination.refused()) == ([], {})
    assert accepting.verify().wrong == []
    assert retry_refused(accepting.engine.pipeline) == {}


@one_unfit_kind
def test_what_is_refused_does_not_hide_the_change_before_it(kind: KindUnderTest, new_story: MakeStory) -> None:
    story = new_story(columns=kind.odd_columns)
    table = story.table(Target(kind, "upsert"))
    story.produce(put(1, "first", odd=None), kind.odd(1), kind.odd(1), kind.odd(2), put(2, "newer", odd=None))
    story.land()
    table.merge()
    expected = [(1, "first", 1), (2, "newer", 1)]
    assert table.rows() == expected
    retry_refused(table.engine.pipeline)
    assert (table.rows(), table.verify().wrong, table.stale()) == (expected, [], 1)
    accepting = table.under(story, **kind.accepting)
    retry_refused(accepting.engine.pipeline)
    assert (accepting.rows(), accepting.destination.refused()) == ([(1, "odd", 1), (2, "newer", 1)], {})
    assert (accepting.verify().wrong, accepting.stale()) == ([], 0)


@one_unfit_kind
@pytest.mark.parametrize("accepting", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_dead_letters_of_a_killed_run_are_those_of_the_run_that_commits(
    kind: KindUnderTest, accepting: bool, new_story: MakeStory
) -> None:
    table = unfit(kind, "quarantine", new_story)
    with dying_at(kind.dead_letters_written):
        table.merge()
    assert table.destination.refused() == {2: 1}
    if accepting:
        table = table.under(table.story, **kind.accepting)
    assert table.merge()
    assert _keys(table) == ([1, 2, 3] if accepting else [1, 3])
    assert table.destination.refused() == ({} if accepting else {2: 1})
    assert table.verify().wrong == []


@one_unfit_kind
def test_row_that_a_table_cannot_hold_fails_the_merge_where_the_file_says_so(
    kind: KindUnderTest, new_story: MakeStory
) -> None:
    table = unfit(kind, "fail", new_story)
    _refuses_to_merge(table, "odd")
    assert _keys(table) == [1]


@one_unfit_kind
def test_more_rows_than_the_limits_allow_stop_the_merge(kind: KindUnderTest, new_story: MakeStory) -> None:
    table = unfit(kind, "quarantine", new_story, dead_letters={"max_share": 0.1, "share_from": 1})
    _refuses_to_merge(table, "max_share")
    story = table.story.edited(dead_letters={"max_share": 0.9})
    assert table.under(story).merge()
    assert (_keys(table), table.destination.refused()) == ([1, 3], {2: 1})


@one_unfit_kind
def test_limits_stop_no_merge_whose_rows_the_table_holds_by_now(kind: KindUnderTest, new_story: MakeStory) -> None:
    table = unfit(kind, "quarantine", new_story, dead_letters={"max_share": 0.1, "share_from": 1})
    _refuses_to_merge(table, "max_share")
    _refuses_to_merge(table, "max_share")
    accepting = table.under(table.story, **kind.accepting)
    assert accepting.merge()
    assert (_keys(accepting), accepting.destination.refused()) == ([1, 2, 3], {})
    assert accepting.verify().wrong == []


def _refuses_to_merge(table: TableUnderTest, why: str) -> None:
    state = table.destination.committed()
    with pytest.raises(BadRecords, match=why) as caught:
        table.merge()
    assert table.destination.name in str(caught.value)
    assert caught.value.remedy
    assert table.destination.committed() == state


@one_unfit_kind
def test_row_that_a_table_cannot_hold_is_counted_only_where_the_file_says_so(
    kind: KindUnderTest, new_story: MakeStory
) -> None:
    table = unfit(kind, "skip", new_story)
    merged = table.merge()
    assert merged
    assert (merged.merged.counts.skipped, merged.merged.counts.refused) == (1, 0)
    assert _keys(table) == [1, 3]
    assert summary(table.engine.pipeline) == []
    assert table.verify().wrong == []

"""The seed's state machine as its table: last range and phase, new range, what happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.destinations.clickhouse.transitions import Case, Decision, Handled, Phase, Span, decide

NONE, BEFORE, AFTER = None, Phase.BEFORE, Phase.AFTER

# last range, its phase, new range: case, inserted, dropped, dead letters ("refused": an error)
TABLE = [
    # -- first: nothing is known, or not even BEFORE could be written
    (NONE, NONE, "0-9", Case.FIRST, ["0-9"], [], []),
    # -- same
    ("10-19", BEFORE, "10-19", Case.SAME, ["10-19"], [], []),
    ("10-19", AFTER, "10-19", Case.SAME, [], ["10-19"], []),
    # -- overlapping: the first piece is the insert of the last time
    ("10-19", BEFORE, "10-25", Case.OVERLAPPING, ["10-19", "20-25"], [], []),
    ("10-19", AFTER, "10-25", Case.OVERLAPPING, ["20-25"], ["10-19"], []),
    # -- contains: in the middle, at the start, at the end
    ("10-19", BEFORE, "12-17", Case.CONTAINS, [], [], ["12-17"]),
    ("10-19", BEFORE, "10-17", Case.CONTAINS, [], [], ["10-17"]),
    ("10-19", BEFORE, "12-19", Case.CONTAINS, [], [], ["12-19"]),
    ("10-19", AFTER, "12-17", Case.CONTAINS, [], ["12-17"], []),
    ("10-19", AFTER, "10-17", Case.CONTAINS, [], ["10-17"], []),
    ("10-19", AFTER, "12-19", Case.CONTAINS, [], ["12-19"], []),
    # -- new
    ("10-19", BEFORE, "20-29", Case.NEW, ["20-29"], [], []),
    ("10-19", AFTER, "20-29", Case.NEW, ["20-29"], [], []),
    # -- gap: offsets in between have no records, or were given up on purpose
    ("10-19", BEFORE, "25-29", Case.GAP, ["25-29"], [], []),
    ("10-19", AFTER, "25-29", Case.GAP, ["25-29"], [], []),
    # -- lower minimum: cropped, then as the rest says
    ("10-19", BEFORE, "5-19", Case.LOWER_MINIMUM, ["10-19"], ["5-9"], []),
    ("10-19", AFTER, "5-19", Case.LOWER_MINIMUM, [], ["5-9", "10-19"], []),
    ("10-19", BEFORE, "5-25", Case.LOWER_MINIMUM, ["10-19", "20-25"], ["5-9"], []),
    ("10-19", AFTER, "5-25", Case.LOWER_MINIMUM, ["20-25"], ["5-9", "10-19"], []),
    ("10-19", BEFORE, "5-15", Case.LOWER_MINIMUM, [], ["5-9"], ["10-15"]),
    ("10-19", AFTER, "5-15", Case.LOWER_MINIMUM, [], ["5-9", "10-15"], []),
    # -- previous: offsets were moved by somebody else
    ("10-19", BEFORE, "0-9", Case.PREVIOUS, "refused", [], []),
    ("10-19", AFTER, "0-9", Case.PREVIOUS, "refused", [], []),
    # -- error: no piece of it is known to be what was inserted
    ("10-19", BEFORE, "15-25", Case.ERROR, "refused", [], []),
    ("10-19", AFTER, "15-25", Case.ERROR, "refused", [], []),
]


def _span(text: str) -> Span:
    first, last = text.split("-")
    return Span(int(first), int(last))


@pytest.mark.parametrize(("last", "phase", "new", "case", "inserted", "dropped", "dead"), TABLE)
def test_table(
    last: str | None,
    phase: Phase | None,
    new: str,
    case: Case,
    inserted: list[str] | str,
    dropped: list[str],
    dead: list[str],
) -> None:
    decision = decide(Handled(_span(last), phase) if last and phase else None, _span(new))
    assert decision.case is case
    assert decision.refused == (inserted == "refused")
    assert [str(s) for s in decision.insert] == ([] if inserted == "refused" else inserted)
    assert [str(s) for s in decision.dropped] == dropped
    assert [str(s) for s in decision.dead] == dead


def test_table_has_every_case_and_phase() -> None:
    assert {row[3] for row in TABLE} == set(Case)
    assert all(
        any(row[3] is case and row[1] is phase for row in TABLE) for case in set(Case) - {Case.FIRST} for phase in Phase
    )


spans = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda ends: Span(min(ends), max(ends)))


@settings(deadline=None)
@given(st.builds(Handled, spans, st.sampled_from(Phase)), spans)
def test_every_offset_has_exactly_one_fate(last: Handled, new: Span) -> None:
    decision = decide(last, new)
    if decision.refused:
        return
    parts = [*decision.insert, *decision.dropped, *decision.dead]
    offsets = [offset for part in parts for offset in range(part.first, part.last + 1)]
    if decision.case is Case.OVERLAPPING and last.phase is Phase.BEFORE:
        assert decision.insert[0] == last.span
    assert sorted(offsets) == list(range(new.first, new.last + 1))


@settings(deadline=None)
@given(st.builds(Handled, spans, st.just(Phase.AFTER)), spans)
def test_confirmed_offsets_are_never_inserted_again(last: Handled, new: Span) -> None:
    decision: Decision = decide(last, new)
    assert all(part.first > last.span.last for part in decision.insert)

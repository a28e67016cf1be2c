"""The cases of the seed's state machine, as its table has them."""

from __future__ import annotations

import pytest

from jobs.destinations.clickhouse.transitions import Case, Span, case_of

TEN = Span(10, 19)


@pytest.mark.parametrize(
    ("last", "first", "end", "case"),
    [
        (None, 0, 9, Case.FIRST),
        (TEN, 20, 29, Case.NEW),
        (TEN, 25, 29, Case.GAP),  # the offsets in between have no records, or were given up on purpose
        (TEN, 10, 19, Case.SAME),
        (TEN, 10, 25, Case.OVERLAPPING),
        (TEN, 12, 17, Case.CONTAINS),
        (TEN, 10, 17, Case.CONTAINS),
        (TEN, 12, 19, Case.CONTAINS),
        (TEN, 5, 10, Case.LOWER_MINIMUM),
        (TEN, 5, 19, Case.LOWER_MINIMUM),
        (TEN, 5, 25, Case.LOWER_MINIMUM),
        (TEN, 0, 9, Case.PREVIOUS),
        (TEN, 15, 25, Case.ERROR),
        (TEN, 19, 20, Case.ERROR),
    ],
)
def test_case(last: Span | None, first: int, end: int, case: Case) -> None:
    assert case_of(last, Span(first, end)) is case


def test_what_follows_from_a_case() -> None:
    assert {case for case in Case if case.follows} == {Case.FIRST, Case.NEW, Case.GAP}
    assert {case for case in Case if case.refused} == {Case.PREVIOUS, Case.ERROR}

"""The state machine of the ClickHouse connector (`docs/internals.md`).

It says what to do with a range of offsets, given what was done before.

Per topic-partition, with the range that was handled last and its phase. Ranges include both ends.

==============  =============================================  ==========================  ====================
case            the new range …                                last phase BEFORE           last phase AFTER
==============  =============================================  ==========================  ====================
first           has nothing before it                          insert
same            is the last one                                insert again                drop
overlapping     starts where it starts and ends later          insert it and the rest      insert the rest
contains        lies inside it                                 dead letters                drop
new             starts right after it                          insert                      insert
gap             starts later than right after it               insert                      insert
lower minimum   starts before it and reaches into it           drop up to its start, then as the rest says
previous        ends before it starts                          error                       error
error           starts inside it and ends after it             error                       error
==============  =============================================  ==========================  ====================

The pieces of an insert that is done again are those of the first time, so that their tokens are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Span(NamedTuple):
    """Offsets from `first` to `last`, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


class Phase(StrEnum):
    """BEFORE: an insert was begun. AFTER: it was acknowledged."""

    BEFORE = "BEFORE"
    AFTER = "AFTER"


class Case(StrEnum):
    FIRST = "first"
    SAME = "same"
    OVERLAPPING = "overlapping"
    CONTAINS = "contains"
    NEW = "new"
    GAP = "gap"
    LOWER_MINIMUM = "lower minimum"
    PREVIOUS = "previous"
    ERROR = "error"


@dataclass(frozen=True)
class Handled:
    """What the state says of a topic-partition."""

    span: Span
    phase: Phase


@dataclass(frozen=True)
class Decision:
    """What to do with which part of the new range; together they are the whole of it.

    Attributes:
        case: of the range as it came; of a cropped one `rest` says what it was after cropping.
        insert: pieces to insert, in this order.
        dead: what can be neither inserted nor dropped without losing or doubling rows.
        refused: True where only a person can decide.
    """

    case: Case
    insert: tuple[Span, ...] = ()
    dropped: tuple[Span, ...] = ()
    dead: tuple[Span, ...] = ()
    refused: bool = False
    rest: Case | None = field(default=None)


def decide(last: Handled | None, new: Span) -> Decision:
    """The state machine's rules for one topic-partition."""
    if last is None:
        return Decision(Case.FIRST, insert=(new,))
    if new.last < last.span.first:
        return Decision(Case.PREVIOUS, refused=True)
    if new.first < last.span.first:
        rest = decide(last, Span(last.span.first, new.last))
        cropped = Span(new.first, last.span.first - 1)
        return Decision(
            Case.LOWER_MINIMUM, rest.insert, (cropped, *rest.dropped), rest.dead, rest.refused, rest=rest.case
        )
    return _not_before(last, new)


def _not_before(last: Handled, new: Span) -> Decision:
    confirmed = last.phase is Phase.AFTER
    if new == last.span:
        return Decision(Case.SAME, dropped=(new,)) if confirmed else Decision(Case.SAME, insert=(new,))
    if new.first > last.span.last:
        case = Case.NEW if new.first == last.span.last + 1 else Case.GAP
        return Decision(case, insert=(new,))
    if new.last <= last.span.last:
        return Decision(Case.CONTAINS, dropped=(new,)) if confirmed else Decision(Case.CONTAINS, dead=(new,))
    if new.first == last.span.first:
        more = Span(last.span.last + 1, new.last)
        if confirmed:
            return Decision(Case.OVERLAPPING, insert=(more,), dropped=(last.span,))
        return Decision(Case.OVERLAPPING, insert=(last.span, more))
    return Decision(Case.ERROR, refused=True)

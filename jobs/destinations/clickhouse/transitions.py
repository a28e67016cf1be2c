"""The cases of the ClickHouse connector's state machine (`docs/internals.md`).

How a range of offsets of a topic-partition relates to the last one that was handled. Ranges include both ends.

==============  =============================================  ======================================================
case            the new range …                                its records …
==============  =============================================  ======================================================
first           has nothing before it                          are new
new             starts right after it                          are new
gap             starts later than right after it               are new
same            is the last one                                are in the table
overlapping     starts where it starts and ends later          are partly in the table
contains        lies inside it                                 are in the table
lower minimum   starts before it and reaches into it           are partly in the table
previous        ends before it starts                          offsets were moved: only a person can decide
error           starts inside it and ends after it             offsets were moved: only a person can decide
==============  =============================================  ======================================================
"""

from __future__ import annotations

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
    NEW = "new"
    GAP = "gap"
    SAME = "same"
    OVERLAPPING = "overlapping"
    CONTAINS = "contains"
    LOWER_MINIMUM = "lower minimum"
    PREVIOUS = "previous"
    ERROR = "error"

    @property
    def follows(self) -> bool:
        """Whether none of the new range's records is in the table."""
        return self in (Case.FIRST, Case.NEW, Case.GAP)

    @property
    def refused(self) -> bool:
        return self in (Case.PREVIOUS, Case.ERROR)


def case_of(last: Span | None, new: Span) -> Case:
    """The case of a new range of one topic-partition."""
    if last is None:
        return Case.FIRST
    if new == last:
        return Case.SAME
    if new.first > last.last:
        return Case.NEW if new.first == last.last + 1 else Case.GAP
    if new.first < last.first:
        return Case.PREVIOUS if new.last < last.first else Case.LOWER_MINIMUM
    if new.last <= last.last:
        return Case.CONTAINS
    return Case.OVERLAPPING if new.first == last.first else Case.ERROR

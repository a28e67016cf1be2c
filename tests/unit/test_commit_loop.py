"""Trying again after a refused commit: which errors, how often, and what the last one says."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from jobs.commit_loop import retry_on_conflict
from resources.errors import BatchmergeError, CommitFailed, CommitStateUnknown, TerminalError, Unavailable

REFUSED, UNKNOWN = CommitFailed("refused"), CommitStateUnknown("no answer")


@dataclass
class Attempts:
    """Each attempt ends in the next of these errors, or succeeds."""

    outcomes: list[BatchmergeError | None]

    def once(self) -> str:
        if outcome := self.outcomes.pop(0):
            raise outcome
        return "committed"


@pytest.mark.parametrize("errors", [[REFUSED, REFUSED], [UNKNOWN], [UNKNOWN, REFUSED, UNKNOWN]])
def test_starts_over_until_a_commit_succeeds(errors: list[BatchmergeError]) -> None:
    attempts = Attempts([*errors, None])
    assert retry_on_conflict(attempts.once, 4, "lake air.flights") == "committed"
    assert attempts.outcomes == []


@pytest.mark.parametrize(("errors", "most"), [([UNKNOWN, UNKNOWN], 8), ([REFUSED, UNKNOWN], 2)])
def test_catalog_that_loses_answers_is_left_to_a_later_try(errors: list[BatchmergeError], most: int) -> None:
    """No other writer is to blame, and nobody has to do anything."""
    attempts = Attempts(list(errors))
    with pytest.raises(CommitStateUnknown):
        retry_on_conflict(attempts.once, most, "lake air.flights")
    assert attempts.outcomes == []


def test_gives_up_after_the_last_attempt_and_names_the_last_error() -> None:
    def once() -> None:
        raise CommitFailed("batch 7 is there already")

    with pytest.raises(TerminalError, match=r"during each of 2 attempts; .*batch 7 is there") as caught:
        retry_on_conflict(once, 2, "lake air.flights")
    assert caught.value.where == "lake air.flights"


def test_other_errors_are_not_tried_again() -> None:
    turns = []

    def once() -> None:
        turns.append(1)
        raise Unavailable("catalog is down")

    with pytest.raises(Unavailable):
        retry_on_conflict(once, 3, "lake air.flights")
    assert len(turns) == 1

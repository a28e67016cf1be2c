"""Trying again after a refused commit: which errors, how often, and what the last one says."""

from __future__ import annotations

import pytest

from jobs.commit_loop import retry_on_conflict
from resources.errors import BatchmergeError, CommitFailed, CommitStateUnknown, TerminalError, Unavailable


@pytest.mark.parametrize("error", [CommitFailed("refused"), CommitStateUnknown("no answer")])
def test_starts_over_until_a_commit_succeeds(error: BatchmergeError) -> None:
    outcomes: list[BatchmergeError | None] = [error, error, None]

    def once() -> str:
        if outcome := outcomes.pop(0):
            raise outcome
        return "committed"

    assert retry_on_conflict(once, 3, "lake air.flights") == "committed"
    assert outcomes == []


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

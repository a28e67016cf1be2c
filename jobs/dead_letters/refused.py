"""Retries the rows that tables refuse: their batches are replayed, with the tables' options as they are now.

A replay judges rows again. It removes the dead letters of rows that the table holds now, or no longer needs because a
newer change of the key is there (`jobs.destinations.refusal`). So this can be repeated at will.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from jobs.destinations.base import Destination
from jobs.pipeline import Pipeline
from jobs.replay.landed import Replayed, replay_batches
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")
# A replay costs seconds, and some batches more in it cost little.
_GAP = 20


@dataclass(frozen=True)
class RetriedRows:
    """What became of the rows that one table refuses.

    Attributes:
        tried: rows that were refused.
        stay: those that are still.
        problem: why a replay was not possible; the others were done.
    """

    tried: int
    stay: int
    replayed: list[Replayed] = field(default_factory=list)
    problem: BatchmergeError | None = None


def retry_refused(pipeline: Pipeline) -> dict[str, RetriedRows]:
    """Per table that refuses rows, by its name; a table that cannot be replayed keeps no other from it."""
    return {d.name: done for d in pipeline.destinations() if (done := _retry(pipeline, d)) is not None}


def _retry(pipeline: Pipeline, destination: Destination) -> RetriedRows | None:
    refused = destination.refused()
    if not refused:
        return None
    destination.prepare()
    replayed, problem = list[Replayed](), None
    landed = pipeline.intermediate.landed().batches
    oldest = landed[0].number if landed else 0
    # Batches that retention has removed keep no others from being replayed.
    gone, there = (ranges(n for n in refused if (n < oldest) is removed) for removed in (True, False))
    for first, last in [*gone, *there]:
        try:
            if done := replay_batches(pipeline, destination, first, last):
                replayed.append(done)
        except BatchmergeError as failed:
            problem = failed
    tried, stay = sum(refused.values()), sum(destination.refused().values())
    _LOG.info("%s: %d of %d refused rows are recovered", destination.name, tried - stay, tried)
    return RetriedRows(tried, stay, replayed, problem)


def ranges(batches: Iterable[int]) -> list[tuple[int, int]]:
    """Ranges of batches, both ends included, that hold all of these; those that are near each other are one."""
    found = list[tuple[int, int]]()
    for number in sorted(batches):
        if found and number - found[-1][1] <= _GAP:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found

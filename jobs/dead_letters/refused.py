"""Retries the rows that tables refused: their batches are replayed, with the tables' present options.

A replay checks rows again. It deletes the dead letters of rows that the table has now, or no longer needs because it
has a newer change of the key (`jobs.destinations.refusal`). So this can be repeated at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from jobs.destinations.base import Destination
from jobs.lineage import of_one_meaning
from jobs.merged import MergedBatches
from jobs.pipeline import Pipeline
from jobs.replay.landed import replay_batches
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")
# Batches at most this far apart are replayed together: a replay costs seconds, more batches in it cost little.
_GAP = 20


@dataclass(frozen=True)
class RetriedRows:
    """The result for the rows that one table refused.

    Attributes:
        tried: the number of refused rows; 0 where the table cannot say.
        stay: the number that are still refused; None where the table cannot say any more.
        problem: why a replay, or the last count, was not possible, and the other replays were made; or why the table
            was not tried.
    """

    tried: int
    stay: int | None
    replayed: list[MergedBatches] = field(default_factory=list)
    problem: BatchmergeError | None = None

    @property
    def recovered(self) -> int | None:
        return None if self.stay is None else self.tried - self.stay


def retry_refused(pipeline: Pipeline) -> dict[str, RetriedRows]:
    """Retries each table with refused rows; results by table name. A table that fails does not stop the others."""
    return {d.name: done for d in pipeline.destinations() if (done := _retry_or_problem(pipeline, d)) is not None}


def _retry_or_problem(pipeline: Pipeline, destination: Destination) -> RetriedRows | None:
    try:
        return _retry(pipeline, destination)
    except BatchmergeError as failed:
        return RetriedRows(0, 0, problem=failed)


def _retry(pipeline: Pipeline, destination: Destination) -> RetriedRows | None:
    refused = destination.refused()
    if not refused:
        return None
    destination.prepare()
    replayed, problem = list[MergedBatches](), None
    for first, last in ranges(refused, _first_replayable(pipeline, destination)):
        try:
            if done := replay_batches(pipeline, destination, first, last):
                replayed.append(done)
        except BatchmergeError as failed:
            problem = failed
    tried = sum(refused.values())
    try:
        stay = sum(destination.refused().values())
    except BatchmergeError as failed:
        return RetriedRows(tried, None, replayed, problem or failed)
    _LOG.info("%s: %d of %d refused rows are recovered", destination.name, tried - stay, tried)
    return RetriedRows(tried, stay, replayed, problem)


def _first_replayable(pipeline: Pipeline, destination: Destination) -> int:
    """The first batch whose replay is not refused (`jobs.replay.landed`), unless a run comes in between."""
    committed = destination.committed()
    if committed is None:
        return 0
    landed = [b for b in pipeline.intermediate.landed().batches if b.number <= committed.batch_number]
    return max(of_one_meaning(landed)[0].number if landed else 0, committed.untraced(destination.table) + 1)


def ranges(batches: Iterable[int], split_at: int = 0) -> list[tuple[int, int]]:
    """Ranges of batches, both ends included, that contain all of these; near ones are joined.

    Args:
        split_at: no range has batches before this one and from it on: one that cannot be replayed stops no other.
    """
    found = list[tuple[int, int]]()
    for number in sorted(batches):
        if found and number - found[-1][1] <= _GAP and (number < split_at) is (found[-1][1] < split_at):
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found

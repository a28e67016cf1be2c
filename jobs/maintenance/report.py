"""The result of one maintenance task on one table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from jobs.failpoints import failpoint
from resources.errors import BatchmergeError, CommitFailed

_LOG = logging.getLogger("batchmerge")


class GaveWay(CommitFailed):
    """The task is left to the next maintenance: a running merge has priority, it is unknown what is still needed, or
    nothing of the table may be deleted."""


@dataclass(frozen=True)
class Done:
    """One task on one table.

    Attributes:
        counts: what it did, by name: files, bytes, snapshots.
        note: why nothing was done, if the counts do not show it.
        problem: why it failed; the other tasks are done nevertheless.
    """

    task: str
    table: str
    counts: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    problem: BatchmergeError | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        counted = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        said = self.note or (str(self.problem) if self.problem else "") or counted or "nothing to do"
        return f"{self.task} of {self.table}: {said}"


def combined(done: Iterable[Done]) -> list[Done]:
    """Combines the results of many topics' tables: each task once, with counts and seconds added up.

    Tasks that failed or gave way are kept separate, with their table.
    """
    added: dict[str, Done] = {}
    apart = []
    for one in done:
        if one.note or one.problem:
            apart.append(one)
            continue
        before = added.get(one.task, Done(one.task, ""))
        counts = {name: before.counts.get(name, 0) + count for name, count in one.counts.items()}
        added[one.task] = replace(before, counts=counts, seconds=round(before.seconds + one.seconds, 3))
    return [*added.values(), *apart]


def do(task: str, table: str, work: Callable[[], Mapping[str, int]]) -> Done:
    """Does the task and returns its result; a conflict is no failure, since the next maintenance tries again."""
    began = time.monotonic()
    counts: Mapping[str, int] = {}
    note, problem = "", None
    try:
        counts = work()
        failpoint(f"maintenance.{task}")
    except CommitFailed as conflict:
        note = f"gave way: {conflict.what}"
    except BatchmergeError as failed:
        problem = failed
    done = Done(task, table, counts, note, problem, round(time.monotonic() - began, 3))
    _LOG.log(logging.WARNING if problem else logging.INFO, "%s", done)
    return done

"""The loop around conditional commits: refresh and try again while other writers are faster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from resources.errors import CommitFailed, CommitStateUnknown, TerminalError

_LOG = logging.getLogger("batchmerge")
T = TypeVar("T")


def retry_on_conflict(once: Callable[[], T], attempts: int, where: str) -> T:
    """The result of the first attempt that is not refused by another writer's commit.

    Args:
        once: one attempt. It must read its starting state each time: after `CommitStateUnknown` that state shows
            whether the commit has happened.
        attempts: the largest number of attempts.

    Raises:
        TerminalError: every attempt was refused.
        CommitStateUnknown: two attempts in turn got no answer: the catalog does not work, and other writers have no
            part in it. The step that is tried again later begins with the state, too.
    """
    refused: CommitFailed | CommitStateUnknown | None = None
    for attempt in range(1, attempts + 1):
        try:
            return once()
        except (CommitFailed, CommitStateUnknown) as problem:
            _LOG.warning("%s, attempt %d: %s", where, attempt, problem)
            if isinstance(problem, CommitStateUnknown) and (isinstance(refused, type(problem)) or attempt == attempts):
                raise
            refused = problem
    raise TerminalError(
        f"other writers have committed during each of {attempts} attempts; the last error: {refused}",
        where=where,
        remedy="let them write less often or to a branch, or raise `max_commit_attempts`",
    ) from refused

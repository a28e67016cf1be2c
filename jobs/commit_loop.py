"""Work that ends in a conditional commit, done again while others are faster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from resources.errors import CommitFailed, TerminalError

_LOG = logging.getLogger("batchmerge")
T = TypeVar("T")


def retry_on_conflict(once: Callable[[], T], attempts: int, failure: TerminalError) -> T:
    """What one attempt gives; it starts over when somebody else has committed meanwhile, so many times.

    Raises:
        TerminalError: `failure`; others were faster each time.
    """
    lost: CommitFailed | None = None
    for attempt in range(1, attempts + 1):
        try:
            return once()
        except CommitFailed as problem:
            _LOG.warning("%s, attempt %d: %s", failure.where, attempt, problem)
            lost = problem
    raise failure from lost

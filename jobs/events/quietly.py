"""Limits the time that data waits for its events; their errors never stop data."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jobs.spec.control import Control
from jobs.time_limit import with_timeout
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")


def quietly(control: Control, who: str, work: Callable[[], None]) -> bool:
    """Whether the work was done in time. It may still be done later, which is harmless: the events are right."""
    try:
        with_timeout(control.time_limit_seconds, f"control topic {control.topic}", work)
    except Exception as problem:  # no error may stop data
        # The text of an error that is not ours may hold anything.
        said = problem if isinstance(problem, BatchmergeError) else type(problem).__name__
        _LOG.warning("%s: commit events could not be published, the next run publishes them: %s", who, said)
        return False
    return True

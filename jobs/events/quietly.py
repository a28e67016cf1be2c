"""Data waits for its events for a limited time, and never fails by them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jobs.spec.control import Control
from jobs.time_limit import with_timeout
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")


def quietly(control: Control, who: str, work: Callable[[], None]) -> bool:
    """True if it was done in time. Events that are sent later are true."""
    try:
        with_timeout(control.time_limit_seconds, f"control topic {control.topic}", work)
    except Exception as problem:  # whatever it is, it must not stop data
        kind = "" if isinstance(problem, BatchmergeError) else f"{type(problem).__name__}: "
        _LOG.warning("%s: commit events could not be published, the next run publishes them: %s%s", who, kind, problem)
        return False
    return True

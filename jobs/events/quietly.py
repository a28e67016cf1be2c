"""Data waits for its events for a limited time, and never fails by them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from jobs.spec.control import Control
from resources.errors import BatchmergeError, Unavailable

_LOG = logging.getLogger("batchmerge")


def quietly(control: Control, who: str, work: Callable[[], None]) -> bool:
    """True if it was done in time. The thread cannot keep the process alive; events that it sends later are true."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except Exception as problem:  # whatever it is, it must not stop data
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True, name="batchmerge-events")
    thread.start()
    thread.join(control.time_limit_seconds)
    if thread.is_alive():
        where = f"control topic {control.topic}"
        problems.append(Unavailable(f"no answer within {control.time_limit_seconds} s", where=where))
    for problem in problems:
        kind = "" if isinstance(problem, BatchmergeError) else f"{type(problem).__name__}: "
        _LOG.warning("%s: commit events could not be published, the next run publishes them: %s%s", who, kind, problem)
    return not problems

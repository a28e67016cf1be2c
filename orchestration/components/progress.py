"""The engine's log lines in the run's log, each under the step that it comes from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

import dagster as dg


class _ToRun(logging.Handler):
    """Hands records of the `batchmerge` loggers to Dagster."""

    def __init__(self, log: dg.DagsterLogManager, level: int, pause: float) -> None:
        super().__init__(level)
        self._log_of_run, self._pause = log, pause
        self._said = dict[str, float]()

    def emit(self, record: logging.LogRecord) -> None:
        if _OF_STEP.get() not in (None, self):
            return
        try:
            said_once = getattr(record, "once", False)
            again = record.created - self._said.get(record.msg, 0.0) >= self._pause
            if record.levelno > self.level or said_once or again:
                self._said[record.msg] = record.created
                self._log_of_run.log(record.levelno, record.getMessage())
        except Exception:
            self.handleError(record)


_OF_STEP: ContextVar[_ToRun | None] = ContextVar("batchmerge_step_log", default=None)
# The logger's level before each step that is under way in this process began; the first one is restored at the end.
_levels = list[int]()
_lock = Lock()


@contextmanager
def engine_log_in_run(log: dg.DagsterLogManager, level: int = logging.INFO, pause: float = 0.0) -> Iterator[None]:
    """Shows the engine's log lines in the run that is under way.

    Args:
        level: the lowest level to show.
        pause: seconds until a line of this level is shown again with other values. Lines of higher levels, and lines
            with `extra={"once": True}`, are always shown.
    """
    logger, handler = logging.getLogger("batchmerge"), _ToRun(log, level, pause)
    token = _OF_STEP.set(handler)
    with _lock:
        _levels.append(logger.level)
        logger.addHandler(handler)
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        with _lock:
            logger.removeHandler(handler)
            before = _levels[0]
            _levels.pop()
            if not _levels:
                logger.setLevel(before)
        _OF_STEP.reset(token)

"""What the engine says while it works, in the run's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg


class _ToRun(logging.Handler):
    """Hands records of the `batchmerge` loggers to Dagster."""

    def __init__(self, log: dg.DagsterLogManager) -> None:
        super().__init__(logging.INFO)
        self._log_of_run = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._log_of_run.log(record.levelno, record.getMessage())
        except Exception:
            self.handleError(record)


@contextmanager
def engine_log_in_run(log: dg.DagsterLogManager) -> Iterator[None]:
    """Shows the engine's log lines in the run that is under way."""
    logger, handler = logging.getLogger("batchmerge"), _ToRun(log)
    level = logger.level
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

"""Output while a command works: the engine's log lines, and on a terminal a progress bar of records."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def engine_log() -> Iterator[None]:
    """Shows the engine's log lines on standard error; on a terminal with a progress bar."""
    console = Console(stderr=True, highlight=False, emoji=False)
    with shown_on(console, bar=sys.stderr.isatty()):
        yield


@contextmanager
def shown_on(console: Console, bar: bool) -> Iterator[Progress]:
    """As `engine_log`, on any console."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    logger = logging.getLogger("batchmerge")
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not bar) as progress:
        handler = _Shown(progress)
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield progress
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)


class _Shown(logging.Handler):
    """Prints lines above the bar, which grows with every batch that is landed."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        # Its length is unknown until a batch has been landed; until then it moves, to show that work goes on.
        self._landing = progress.add_task("records", total=None)
        self.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._progress.console.print(self.format(record), markup=False, highlight=False, soft_wrap=True)
            landed, waiting = getattr(record, "landed", None), getattr(record, "waiting", None)
            if landed is not None and waiting is not None:
                done = self._progress.tasks[self._landing].completed + landed
                self._progress.update(self._landing, completed=done, total=done + waiting)
        except Exception:
            self.handleError(record)

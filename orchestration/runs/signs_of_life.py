"""Signs of life of a command's run, for those who cannot see its process: other machines, other containers.

They are events in the run's own log, so that they are written beside nothing else and go with the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import dagster as dg

from orchestration.names import SIGNS_TAG

_LOG = logging.getLogger("batchmerge")
_SIGN = "This run's process works."
# Seconds until the next sign is tried where one could not be given.
_SOON = 1.0
# Seconds between two signs, and without any event until a run counts as dead.
_EVERY, _SILENT = 300.0, 1800.0


@contextmanager
def signs_of_life(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """The run gives signs as long as this process works."""
    over = Event()

    def give() -> None:
        pause = _EVERY
        while not over.wait(pause):
            try:
                pause = _EVERY
                if run := instance.get_run_by_id(run_id):
                    instance.report_engine_event(_SIGN, run)
            except Exception as problem:
                # Dagster's database may be away for a while. Soon after it is back, others look for a sign.
                pause = min(_EVERY, _SOON)
                _LOG.debug("no sign of life: %s", type(problem).__name__)

    thread = Thread(target=give, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def is_silent(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether a run that gives signs has logged nothing for so long that its process cannot be alive.

    Its commits are refused if it only slept.
    """
    if run.tags.get(SIGNS_TAG) != run.run_id:
        return False
    newest = instance.event_log_storage.get_logs_for_run(run.run_id, limit=1, ascending=False)
    return bool(newest) and time.time() - newest[0].timestamp > _SILENT

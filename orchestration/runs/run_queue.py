"""How long a run counts for the number of runs that the instance lets work side by side (`dagster.yaml`).

Dagster starts no run while as many as this are under way, also if all of these hang. So a run that takes long lets
another one start beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import dagster as dg

from orchestration.names import WORK_ASIDE, WORK_BEGUN, WORK_TAG

# Seconds that a run counts.
_YOUNG = 600.0


def count_again(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Before a run is ended, or found dead: the run that retries it gets its tags, and is to wait for its turn."""
    if run.tags.get(WORK_TAG) == WORK_ASIDE:
        instance.add_run_tags(run.run_id, {WORK_TAG: WORK_BEGUN})


@contextmanager
def counting_while_young(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """Within it the run counts for its first ten minutes."""
    over = Event()

    def step_aside() -> None:
        while not over.wait(_YOUNG):
            with suppress(Exception):  # Dagster's storage may be away for a moment
                instance.add_run_tags(run_id, {WORK_TAG: WORK_ASIDE})
                return

    Thread(target=step_aside, daemon=True, name="batchmerge-run-queue").start()
    try:
        yield
    finally:
        over.set()

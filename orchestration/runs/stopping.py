"""Ends runs on a person's request: queued ones, the daemon's, those in a terminal, and hung ones."""

from __future__ import annotations

import time
from collections.abc import Sequence

import dagster as dg
from dagster_shared.error import DagsterError

from orchestration.runs.dead_runs import end_dead_runs, name_of
from orchestration.runs.run_process import end_leftovers, interrupt, kill, process_state
from resources.errors import Unavailable

# Seconds that a cancelled run has to end by itself; then its process is killed.
_PATIENCE = 20.0
# Seconds between two checks whether the run has ended.
_LOOK = 0.1


def stop_runs(instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun]) -> list[str]:
    """Cancels these runs and waits until they are over; a line for each.

    Raises:
        Unavailable: one runs on another machine and does not end.
    """
    for run in runs:
        _ask(instance, run)
    return [_wait(instance, run) for run in runs]


def _ask(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    if interrupt(instance, run):
        return
    try:
        instance.run_coordinator.cancel_run(run.run_id)
    except DagsterError:  # its code server is gone: the process, if there is one, is looked at below
        instance.report_run_canceling(run)


def _wait(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    ends = time.monotonic() + _PATIENCE
    while (now := instance.get_run_by_id(run.run_id)) and not now.is_finished:
        if time.monotonic() > ends:
            return _kill(instance, now)
        end_dead_runs(instance)
        time.sleep(_LOOK)
    return f"{name_of(run)} is cancelled"


def _kill(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    if process_state(run) == "unknown":
        raise Unavailable(
            f"{name_of(run)} does not end, and its process is not on this machine",
            remedy="end it there, or mark it as failed in Dagster; then try again",
        )
    kill(run)
    end_leftovers(run)
    instance.report_run_canceled(run, f"it did not end within {_PATIENCE:.0f} s and was killed")
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return f"{name_of(run)} did not end by itself and was killed"

"""Ends runs whose process has ended although Dagster shows them as running, and frees their pools.

Dagster's daemon does the same after a while (run monitoring). Here whoever waits for such a pool does it, at once and
also without a daemon. If a run that was taken for dead wakes up, its commits are refused, like those of any older run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

import dagster as dg

from orchestration.names import PIPELINE_TAG
from orchestration.runs.run_process import end_leftovers, process_state, where, will_not_begin
from orchestration.runs.run_queue import count_again
from orchestration.runs.runs_about import IN_PROGRESS, NOT_BEGUN
from orchestration.runs.signs_of_life import is_silent
from resources.local.locks import alone_in

# Seconds that a step of a finished run may take to end.
_GRACE = 60


def end_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Ends the runs whose process has ended, and frees the pools of ended runs. Returns a line for each such run."""
    held = _held(instance)
    in_progress = {run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS))}
    reasons = []
    for run_id in sorted({*held, *in_progress}):
        if reason := _end(instance, run_id):
            instance.event_log_storage.free_concurrency_slots_for_run(run_id)
            freed = ", ".join(sorted(held.get(run_id, ())))
            reasons.append(f"{reason}; freed {freed}" if freed else reason)
    return reasons


def death_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """What has become of the process of an unfinished run, if it is dead; None: it may be alive."""
    state = process_state(run)
    if state == "unknown" and is_silent(instance, run):
        return f"{where(run)} has given no sign of life for half an hour"
    # A command that is killed right after it has created a run never starts it.
    if state == "ended" or (run.status in NOT_BEGUN and will_not_begin(run)):
        return f"{where(run)} is gone (killed, or the machine restarted)"
    return None


def name_of(run: dg.DagsterRun) -> str:
    """``run 1a2b3c4d of orders``."""
    return f"run {run.run_id[:8]} of {run.tags.get(PIPELINE_TAG) or run.job_name}"


def _held(instance: dg.DagsterInstance) -> dict[str, set[str]]:
    """The pools that each run holds or waits for."""
    storage, held = instance.event_log_storage, defaultdict[str, set[str]](set)
    for pool, info in storage.get_concurrency_infos(list(storage.get_concurrency_keys())).items():
        for run_id in (*info.active_run_ids, *(step.run_id for step in info.pending_steps)):
            held[run_id].add(pool)
    return held


def _end(instance: dg.DagsterInstance, run_id: str) -> str | None:
    """Ends a run that is dead, and says why, also in its log; None: it may be alive."""
    record = instance.get_run_record_by_id(run_id)
    if record is None:
        return f"run {run_id[:8]} was deleted"
    run = record.dagster_run
    if run.is_finished:
        if process_state(run) != "ended" and time.time() - (record.end_time or 0) < _GRACE:
            return None
        end_leftovers(run)
        return f"{name_of(run)} has ended ({run.status.value.lower()})"
    reason = death_of(instance, run)
    if reason is None:
        return None
    if left := end_leftovers(run):
        reason += f"; ended {left} processes of its steps, which lived on"
    return f"{name_of(run)} is over, its {reason}" if _report(instance, run_id, reason) else None


def _report(instance: dg.DagsterInstance, run_id: str, reason: str) -> bool:
    """Reports the end of a run, once: many look for dead runs, and it may have ended in order before its process did.

    Returns whether it did so. If another thread or process is about to, it leaves that to it.
    """
    with alone_in(Path(instance.root_directory)) as alone:
        run = instance.get_run_by_id(run_id) if alone else None
        if run is None or run.is_finished:
            return False
        count_again(instance, run)
        if run.status == dg.DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, reason)
        else:
            instance.report_run_failed(run, reason)
    return True

"""The pipelines in Dagster's instance: what starts by itself, what runs, what failed last."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.scheduler.instigation import InstigatorStatus

from orchestration.databases import keep_databases_open
from orchestration.names import PIPELINE_TAG, STALE_KEYS, landing_key
from orchestration.pauses import pauses_of
from orchestration.runs.runs_about import is_about, to_process, under_way
from orchestration.status.dagster_answers import AsksDagster, DagsterState, TableKey, used_home
from orchestration.step_failures import failure_text

# Seconds without a heartbeat after which the daemon counts as down; its parts send one every 30 s.
_SILENT = 90
_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
# Finished runs on assets that are looked through, for the newest of each pipeline.
_MOST = 100


class DagsterHere(AsksDagster):
    """Asks an instance that is open in this process; None: Dagster was never used here."""

    def __init__(self, instance: dg.DagsterInstance | None) -> None:
        self._instance = instance

    def state(self, pipelines: Mapping[str, Sequence[TableKey]]) -> DagsterState:
        if (instance := self._instance) is None:
            return DagsterState()
        states = instance.all_instigator_state()
        pauses = {name: pauses_of(instance, name, map(dg.AssetKey, tables)) for name, tables in pipelines.items()}
        keys = {name: {landing_key(name), *map(dg.AssetKey, tables)} for name, tables in pipelines.items()}
        now = under_way(instance)
        by_table = {name: [pauses[name].tables.get(dg.AssetKey(t)) for t in pipelines[name]] for name in pipelines}
        return DagsterState(
            daemon=_daemon_runs(instance),
            stopped=frozenset(state.name for state in states if state.status == InstigatorStatus.STOPPED),
            errors=_last_errors(instance, keys),
            runs={name: [_named(run) for run in now if is_about(run, name, keys[name])] for name in pipelines},
            paused={name: reason for name, found in pauses.items() if (reason := found.reason())},
            tables_paused={name: [str(one) if one else None for one in found] for name, found in by_table.items()},
        )

    def stale_keys(self, tables: Sequence[TableKey]) -> list[int]:
        keys = [dg.AssetKey(table) for table in tables]
        storage = self._instance.event_log_storage if self._instance and keys else None
        events = storage.get_latest_materialization_events(keys) if storage else {}
        return [_stale_keys(events.get(key)) for key in keys]


@contextmanager
def used_instance() -> Iterator[dg.DagsterInstance | None]:
    """The instance of the data folder; None: Dagster was never used here."""
    home = used_home()
    if home is None:
        yield None
        return
    keep_databases_open()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def _stale_keys(event: dg.EventLogEntry | None) -> int:
    made = event.asset_materialization if event else None
    value = made.metadata.get(STALE_KEYS) if made else None
    return value.value or 0 if isinstance(value, dg.IntMetadataValue) else 0


def _named(run: dg.DagsterRun) -> str:
    job = "launched on assets" if run.job_name == IMPLICIT_ASSET_JOB_NAME else run.job_name
    return f"run {run.run_id[:8]}{'' if PIPELINE_TAG in run.tags else f' ({job})'} is {run.status.value.lower()}"


def _daemon_runs(instance: dg.DagsterInstance) -> bool:
    """Whether a daemon takes runs out of the queue, and ticks schedules and sensors."""
    heartbeats = [beat.timestamp for beat in instance.get_daemon_heartbeats().values()]
    return time.time() - max(heartbeats, default=0.0) < _SILENT


def _last_errors(instance: dg.DagsterInstance, keys: Mapping[str, set[dg.AssetKey]]) -> dict[str, str]:
    """By pipeline the error of the newest finished run that has landed or merged its assets, if that failed."""
    on_assets = dg.RunsFilter(statuses=_FINISHED, job_name=IMPLICIT_ASSET_JOB_NAME)
    launched, found = instance.get_run_records(on_assets, limit=_MOST), dict[str, str]()
    for name in keys:
        own = instance.get_run_records(dg.RunsFilter(statuses=_FINISHED, tags={PIPELINE_TAG: name}), limit=1)
        others = [record for record in launched if to_process(record.dagster_run, name, keys[name])]
        newest = max([*own, *others[:1]], key=lambda record: record.storage_id, default=None)
        if newest and newest.dagster_run.status == dg.DagsterRunStatus.FAILURE:
            found[name] = _error(instance, newest.dagster_run.run_id)
    return found


def _error(instance: dg.DagsterInstance, run_id: str) -> str:
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        if entry.dagster_event:
            return failure_text(entry.dagster_event)
    return f"run {run_id} failed"

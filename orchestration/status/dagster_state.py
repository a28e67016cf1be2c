"""The pipelines in Dagster's instance: what starts by itself, what runs, what failed last."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, InstigatorTick, TickStatus
from dagster_shared.error import SerializableErrorInfo

from orchestration.databases import keep_databases_open
from orchestration.names import MAINTENANCE_TAG, PIPELINE_TAG, STALE_KEYS, landing_key
from orchestration.pauses import pauses_of
from orchestration.runs.runs_about import is_about, to_process, under_way
from orchestration.status.dagster_answers import AsksDagster, DagsterState, TableKey, Tick, used_home
from orchestration.step_failures import failure_text, run_failure_text

# Seconds without a heartbeat after which the daemon counts as down; its parts send one every 30 s.
_SILENT = 90
_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
_FAILURES = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
# Finished runs on assets that are looked through, for the newest of each pipeline.
_MOST = 100


class DagsterHere(AsksDagster):
    """Asks an instance that is open in this process; None: Dagster was never used here.

    Args of the constructor:
        with_ticks: also asks for the ticks of schedules and sensors, one by one.
    """

    def __init__(self, instance: dg.DagsterInstance | None, *, with_ticks: bool = True) -> None:
        self._instance, self._with_ticks = instance, with_ticks

    def state(self, pipelines: Mapping[str, Sequence[TableKey]]) -> DagsterState:
        if (instance := self._instance) is None:
            return DagsterState()
        current = self._current(instance)
        pauses = {name: pauses_of(instance, name, map(dg.AssetKey, tables)) for name, tables in pipelines.items()}
        keys = {name: {landing_key(name), *map(dg.AssetKey, tables)} for name, tables in pipelines.items()}
        now = under_way(instance)
        by_table = {name: [pauses[name].tables.get(dg.AssetKey(t)) for t in pipelines[name]] for name in pipelines}
        return DagsterState(
            daemon=_daemon_runs(instance),
            stopped=frozenset(n for n, (state, _) in current.items() if state.status == InstigatorStatus.STOPPED),
            errors=_last_errors(instance, keys),
            maintenance_errors=_maintenance_errors(instance, keys),
            ticks={name: tick for name, (_, tick) in current.items() if tick},
            runs={name: [_named(run) for run in now if is_about(run, name, keys[name])] for name in pipelines},
            paused={name: reason for name, found in pauses.items() if (reason := found.reason())},
            tables_paused={name: [str(one) if one else None for one in found] for name, found in by_table.items()},
        )

    def _current(self, instance: dg.DagsterInstance) -> dict[str, tuple[InstigatorState, Tick | None]]:
        """Each schedule and sensor with its newest tick. Where a code location had another name before, Dagster still
        knows those of that name, which tick no more."""
        states = instance.all_instigator_state()
        ticks = [(state, _newest_tick(instance, state) if self._with_ticks else None) for state in states]
        ticks.sort(key=lambda one: one[1].at.timestamp() if one[1] else 0.0)
        return {state.name: (state, tick) for state, tick in ticks}

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


def _newest_tick(instance: dg.DagsterInstance, state: InstigatorState) -> Tick | None:
    # One query each: the one that Dagster has for many reads all of their ticks.
    found = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    return _tick(found[0]) if found else None


def _tick(tick: InstigatorTick) -> Tick:
    failed = tick.error if tick.status == TickStatus.FAILURE else None
    return Tick(at=datetime.fromtimestamp(tick.timestamp, UTC), problem=_cause(failed) if failed else None)


def _cause(error: SerializableErrorInfo) -> str:
    """The class of the error from which all others follow; its text may hold anything."""
    while error.cause:
        error = error.cause
    return error.cls_name or "an error"


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


def _maintenance_errors(instance: dg.DagsterInstance, names: Iterable[str]) -> dict[str, str]:
    found = dict[str, str]()
    for name in names:
        ended = dg.RunsFilter(statuses=_FINISHED, tags={MAINTENANCE_TAG: name})
        for run in instance.get_runs(ended, limit=1):
            if run.status == dg.DagsterRunStatus.FAILURE:
                found[name] = _error(instance, run.run_id)
    return found


def _error(instance: dg.DagsterInstance, run_id: str) -> str:
    # A run in which a step has failed fails after it.
    for entry in instance.all_logs(run_id, of_type=_FAILURES):
        if event := entry.dagster_event:
            own = event.is_step_failure
            return failure_text(event) if own else f"run {run_id[:8]}: {run_failure_text(instance, run_id, event)}"
    return f"run {run_id} failed"

"""The pipelines in Dagster's instance: what starts by itself, what runs, what failed last."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorStatus

from jobs.spec.pipeline import PipelineSpec
from orchestration.components.metadata import STALE_KEYS
from orchestration.daemon import daemon_runs
from orchestration.databases import keep_databases_open
from orchestration.known_tables import known_tables
from orchestration.names import PIPELINE_TAG, table_key
from orchestration.pauses import Pauses, read_pauses
from orchestration.step_failures import failure_text
from resources.connections import data_folder

_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
_UNDER_WAY = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]


@dataclass(frozen=True)
class DagsterState:
    """All pipelines at one moment.

    Attributes:
        daemon: whether Dagster's daemon runs; without it no schedule and no sensor starts anything.
        stopped: schedules and sensors that somebody has stopped in Dagster.
        errors: by pipeline the error of its newest finished run, if that failed.
        runs: by pipeline a line for each run under way.
        pauses: by pipeline what a person has paused.
    """

    daemon: bool = False
    stopped: frozenset[str] = frozenset()
    errors: dict[str, str] = field(default_factory=dict)
    runs: dict[str, list[str]] = field(default_factory=dict)
    pauses: dict[str, Pauses] = field(default_factory=dict)


def dagster_state(instance: dg.DagsterInstance | None, specs: Mapping[str, PipelineSpec]) -> DagsterState:
    """The state in this instance; an empty one without an instance (Dagster was never used here)."""
    if instance is None:
        return DagsterState()
    states = instance.all_instigator_state()
    return DagsterState(
        daemon=daemon_runs(instance),
        stopped=frozenset(state.name for state in states if state.status == InstigatorStatus.STOPPED),
        errors={name: error for name in specs if (error := _last_error(instance, name))},
        runs={name: [_named(run) for run in _runs(instance, name, _UNDER_WAY)] for name in specs},
        pauses={name: read_pauses(instance, name, spec) for name, spec in specs.items()},
    )


def stale_keys(instance: dg.DagsterInstance | None, specs: Mapping[str, PipelineSpec]) -> dict[tuple[str, str], int]:
    """The number of stale keys at each table's last merge, by pipeline and table; only where there are any."""
    tables = {table_key(t.table): (name, t.label) for name, spec in specs.items() for t in known_tables(name, spec)}
    storage = instance.event_log_storage if instance and tables else None
    events = storage.get_latest_materialization_events(list(tables)) if storage else {}
    made = {tables[key]: event.asset_materialization for key, event in events.items() if event}
    values = {table: one.metadata.get(STALE_KEYS) for table, one in made.items() if one}
    return {
        table: value.value for table, value in values.items() if isinstance(value, dg.IntMetadataValue) and value.value
    }


@contextmanager
def used_instance() -> Iterator[dg.DagsterInstance | None]:
    """The instance of the data folder; None: Dagster was never used here."""
    home = Path(os.environ.get("DAGSTER_HOME", data_folder() / "dagster"))
    if not home.exists():
        yield None
        return
    keep_databases_open()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def _runs(
    instance: dg.DagsterInstance, name: str, statuses: Sequence[dg.DagsterRunStatus], limit: int | None = None
) -> Sequence[dg.DagsterRun]:
    return instance.get_runs(dg.RunsFilter(statuses=list(statuses), tags={PIPELINE_TAG: name}), limit=limit)


def _named(run: dg.DagsterRun) -> str:
    return f"run {run.run_id[:8]} is {run.status.value.lower()}"


def _last_error(instance: dg.DagsterInstance, name: str) -> str | None:
    runs = _runs(instance, name, _FINISHED, limit=1)
    if not runs or runs[0].status != dg.DagsterRunStatus.FAILURE:
        return None
    run_id = runs[0].run_id
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        if entry.dagster_event:
            return failure_text(entry.dagster_event)
    return f"run {run_id} failed"

"""How the pipelines are: for `batchmerge status`."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import dagster as dg
from pydantic import BaseModel, ConfigDict

from jobs.batch import CommittedState
from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from jobs.time_limit import with_timeout
from orchestration.components.metadata import lag_behind
from orchestration.files import open_pipeline, pipeline_names
from orchestration.names import PIPELINE_TAG
from resources.connections import Connections, connections_path, data_folder, load_connections
from resources.errors import BatchmergeError

T = TypeVar("T")
_LIMIT = 15


class TableStatus(BaseModel):
    """One table, or the landing.

    Attributes:
        lag: records that Kafka has and the table has not; None where that cannot be told now.
        vtts: valid-through timestamp.
        problem: why the table cannot be asked now.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    batch: int | None = None
    lag: int | None = None
    vtts: datetime | None = None
    problem: str | None = None


class PipelineStatus(BaseModel):
    """One pipeline: landing, then its tables; its last failed run if none succeeded since; why it does not open."""

    model_config = ConfigDict(frozen=True)
    name: str
    tables: list[TableStatus]
    last_error: str | None = None
    problem: str | None = None


def pipeline_status() -> list[PipelineStatus]:
    """All pipelines. What does not answer is told as such, within seconds; without connections there is nothing."""
    if not connections_path().exists():
        return []
    connections = load_connections()
    names = pipeline_names()
    errors = _last_errors(names)
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda name: _status(name, connections, errors.get(name)), names))


def _status(name: str, connections: Connections, error: str | None) -> PipelineStatus:
    try:
        pipeline = open_pipeline(name, connections)
        destinations = pipeline.destinations()
    except BatchmergeError as problem:
        return PipelineStatus(name=name, tables=[], problem=str(problem))
    asked: list[tuple[str, Callable[[], CommittedState | None]]] = [
        (f"landing {pipeline.intermediate.identifier}", pipeline.intermediate.committed)
    ]
    asked += [(destination.name, destination.committed) for destination in destinations]
    ends = _ends(pipeline)
    return PipelineStatus(name=name, tables=[_table(what, ask, ends) for what, ask in asked], last_error=error)


def _ends(pipeline: Pipeline) -> Offsets | None:
    try:
        return _limited("Kafka", pipeline.topic_state).stable
    except BatchmergeError:
        return None


def _table(name: str, ask: Callable[[], CommittedState | None], ends: Offsets | None) -> TableStatus:
    try:
        state = _limited(name, ask)
    except BatchmergeError as problem:
        return TableStatus(name=name, problem=str(problem))
    vtts = state.watermark.vtts if state else None
    return TableStatus(
        name=name,
        batch=state.batch_number if state else None,
        lag=lag_behind(ends, state) if ends is not None else None,
        vtts=datetime.fromtimestamp(vtts / 1000, UTC) if vtts is not None else None,
    )


def _limited(where: str, work: Callable[[], T]) -> T:
    return with_timeout(_LIMIT, where, work, lambda: None)


def _last_errors(names: list[str]) -> dict[str, str]:
    """Per pipeline why its newest finished run failed, if it did. Nothing where Dagster was never used here."""
    home = Path(os.environ.get("DAGSTER_HOME", data_folder() / "dagster"))
    if not home.exists():
        return {}
    found = {}
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for name in names:
            finished = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
            runs = instance.get_runs(dg.RunsFilter(statuses=finished, tags={PIPELINE_TAG: name}), limit=1)
            if runs and runs[0].status == dg.DagsterRunStatus.FAILURE:
                found[name] = _error(instance, runs[0].run_id)
    return found


def _error(instance: dg.DagsterInstance, run_id: str) -> str:
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        if entry.dagster_event:
            data = entry.dagster_event.step_failure_data
            told = data.user_failure_data.description if data.user_failure_data else None
            return told or (data.error.message.strip() if data.error else f"run {run_id} failed")
    return f"run {run_id} failed"

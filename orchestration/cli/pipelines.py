"""How the pipelines are: for `batchmerge status`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from jobs.batch import CommittedState
from jobs.destinations.base import Destination
from jobs.landing.intermediate import IntermediateTable
from jobs.members import Members, Seen
from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from jobs.time_limit import with_timeout
from orchestration.cli.dagster_state import DagsterState, dagster_state
from orchestration.components.metadata import caught_up_through, lag_behind
from orchestration.files import open_members, open_pipeline, pipeline_file, pipeline_names, pipeline_spec, split_name
from orchestration.names import resident_job, table_key
from orchestration.pauses import Pauses
from orchestration.sensors.busy import paused_reason
from resources.connections import Connections, connections_path, load_connections
from resources.errors import BatchmergeError

T = TypeVar("T")
_LIMIT = 15


class TableStatus(BaseModel):
    """One table, or the landing.

    Attributes:
        lag: records that Kafka has and the table has not; None where that cannot be told now.
        seconds_behind: how long ago it had everything that there was; 0 where nothing waits.
        vtts: valid-through timestamp: no record of before is missing, of any partition.
        caught_up_through: the same, where a partition that was read to its end counts as of then.
        dead_letters: of the landing: records that cannot be read.
        stale_keys: of a table: keys of which it had an older row than was sent when it was last merged.
        refused: of a table: landed rows that it cannot store.
        paused: by whom and since when, where a person has paused it.
        problem: why the table cannot be asked now.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    batch: int | None = None
    lag: int | None = None
    seconds_behind: float | None = None
    vtts: datetime | None = None
    caught_up_through: datetime | None = None
    dead_letters: int | None = None
    refused: int | None = None
    stale_keys: int = 0
    paused: str | None = None
    problem: str | None = None


class PipelineStatus(BaseModel):
    """One pipeline: its landing first, then its tables.

    Attributes:
        paused: nothing of it starts by itself.
        starts: what starts it, or why nothing does, for people.
        runs: those under way, for people.
        last_error: of its last run, if that failed.
        problem: why its file cannot be used.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    tables: list[TableStatus]
    paused: bool = False
    starts: str = ""
    runs: list[str] = []
    last_error: str | None = None
    problem: str | None = None


class Status(BaseModel):
    """All pipelines, and whether a Dagster daemon runs, which starts their schedules and sensors."""

    model_config = ConfigDict(frozen=True)
    daemon: bool = False
    pipelines: list[PipelineStatus] = []


def pipeline_status(only: Sequence[str] = ()) -> Status:
    """All pipelines. What does not answer is reported as such, within seconds; without connections there is nothing.

    Args:
        only: these pipelines, or topics of them.

    Raises:
        ConfigurationError: one of them is none, or its file is wrong.
    """
    if not only and not connections_path().exists():
        return Status()
    for name in only:
        pipeline_file(name)
    connections, names = load_connections(), only or pipeline_names()
    state = dagster_state(_specs(names))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: _status(name, connections, state), names))
    return Status(daemon=state.daemon, pipelines=found)


def _specs(names: Sequence[str]) -> dict[str, PipelineSpec]:
    """Of the files that can be read; what is wrong with the others is told with their pipelines."""
    found = {}
    for name in names:
        with suppress(BatchmergeError):
            found[split_name(name)[0]] = pipeline_spec(name)
    return found


def _status(name: str, connections: Connections, state: DagsterState) -> PipelineStatus:
    pipeline = split_name(name)[0]
    pauses = state.pauses.get(pipeline) or Pauses(pipeline)
    try:
        spec = pipeline_spec(name)
        members = open_members(name, connections)
        tables = _of_members(members, state) if members else _tables(open_pipeline(name, connections), pauses, state)
    except BatchmergeError as problem:
        return PipelineStatus(name=name, tables=[], problem=str(problem))
    paused = paused_reason(pauses, spec)
    return PipelineStatus(
        name=name,
        tables=tables,
        paused=paused is not None,
        starts=f"nothing starts: {paused}" if paused else _starts(pipeline, spec, state),
        runs=state.runs.get(pipeline, []),
        last_error=state.errors.get(pipeline),
    )


def _tables(pipeline: Pipeline, pauses: Pauses, state: DagsterState) -> list[TableStatus]:
    """The landing, then the tables."""
    destinations, ends, place = pipeline.destinations(), _ends(pipeline), pipeline.intermediate
    landing = f"landing {place.identifier}"
    tables = [_table(landing, place.committed, "dead_letters", partial(_quarantined, place), ends)]
    for d in destinations:
        held = pauses.tables.get(table_key(d.table))
        found = _table(d.name, d.committed, "refused", partial(_refused, d), ends)
        stale = state.stale.get(table_key(d.table), 0)
        tables.append(found.model_copy(update={"paused": str(held) if held else None, "stale_keys": stale}))
    return tables


def _of_members(members: Members, state: DagsterState) -> list[TableStatus]:
    """The landing and the tables of every topic; Kafka is asked about all topics at once."""
    try:
        seen = with_timeout(_LIMIT, "Kafka", members.look)
    except BatchmergeError:
        seen = Seen(members.known(), {})

    def tables(pipeline: Pipeline) -> list[TableStatus]:
        return _tables(pipeline, Pauses(members.name), state)

    found = members.each("status", seen.members, tables, seen.states)
    by_topic = {outcome.topic: outcome.done or [] for outcome in found}
    failed = [TableStatus(name=f"topic {topic}", problem=str(problem)) for topic, problem in seen.failed.items()]
    return [*(table for topic in sorted(by_topic) for table in by_topic[topic]), *failed]


def _starts(name: str, spec: PipelineSpec, state: DagsterState) -> str:
    ways = {f"{name}_schedule": f"its schedule ({spec.cron})"}
    if spec.interval:
        ways = {resident_job(name): f"its sensor {resident_job(name)}"}
    if spec.trigger:
        ways[f"{name}_lag"] = "its trigger"
    on = [way for instigator, way in ways.items() if instigator not in state.stopped]
    off = [f"{way} is stopped in Dagster" for instigator, way in ways.items() if instigator in state.stopped]
    what = f"keeps a run that commits every {spec.interval}" if spec.interval else "starts runs"
    return "; ".join([f"{' and '.join(on)} {what if len(on) == 1 else 'start runs'}"] * bool(on) + off)


def _quarantined(place: IntermediateTable) -> int:
    return sum(batch.counts.quarantined - batch.counts.recovered for batch in place.landed().batches)


def _refused(destination: Destination) -> int:
    return sum(destination.refused().values())


def _ends(pipeline: Pipeline) -> Offsets | None:
    try:
        return with_timeout(_LIMIT, "Kafka", pipeline.topic_state).stable
    except BatchmergeError:
        return None


def _table(
    name: str, ask: Callable[[], CommittedState | None], counted: str, count: Callable[[], int], ends: Offsets | None
) -> TableStatus:
    try:
        state = with_timeout(_LIMIT, name, ask)
        number = with_timeout(_LIMIT, name, count) if state else 0
    except BatchmergeError as problem:
        return TableStatus(name=name, problem=str(problem))
    vtts, now = state.watermark.vtts if state else None, datetime.now(UTC)
    lag = lag_behind(ends, state) if ends is not None else None
    through = caught_up_through(state.watermark if state else None, lag, now)
    return TableStatus(
        name=name,
        batch=state.batch_number if state else None,
        lag=lag,
        seconds_behind=round((now - through).total_seconds(), 1) if through else None,
        caught_up_through=through,
        vtts=datetime.fromtimestamp(vtts / 1000, UTC) if vtts is not None else None,
        **{counted: number},
    )

"""The state of the pipelines, for `batchmerge status`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle, islice

from pydantic import BaseModel, ConfigDict

from jobs.batch import CommittedState
from jobs.connections_file import connections_path, load_connections
from jobs.dead_letters.open_count import open_count
from jobs.destinations.base import Destination
from jobs.member_topics import Seen
from jobs.members import Members
from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from jobs.plan import TopicState
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli.asking import Asking
from orchestration.cli.dagster_state import DagsterState, dagster_state, stale_keys, used_instance
from orchestration.components.metadata import caught_up_through, lag_behind
from orchestration.files import (
    open_members,
    open_pipeline,
    pipeline_file,
    pipeline_names,
    pipeline_spec,
    readable_specs,
    split_name,
)
from orchestration.names import continuous_job, table_key
from orchestration.pauses import Pause, Pauses
from orchestration.sensors.busy import paused_reason
from resources.connections import Connections
from resources.errors import BatchmergeError

# Tables of a pipeline that are queried at once, at most.
_AT_ONCE = 32
# The pause of each entry of `tables`; None: it is not paused.
Held = Sequence[Pause | None]


class TableStatus(BaseModel):
    """One table, or the landing.

    Attributes:
        topic: with `for_each` the topic whose table or landing this is.
        lag: records that Kafka has and the table has not; None: unknown now.
        seconds_behind: seconds since the table had all records; 0: nothing waits.
        vtts: valid-through timestamp: the table has all earlier records of every partition.
        caught_up_through: as `vtts`, but a partition that was read to its end counts up to that moment.
        dead_letters: of the landing: records that cannot be read.
        refused: of a table: landed rows that it cannot store.
        stale_keys: of a table: keys of which it had an older row than was sent, at its last merge.
        paused: by whom and since when; None: it is not paused.
        problem: why the table cannot be queried now.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    topic: str | None = None
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

    @property
    def is_landing(self) -> bool:
        """Whether this is a landing, or a topic that cannot be landed."""
        return self.name.startswith(("landing ", "topic "))


class PipelineStatus(BaseModel):
    """One pipeline: its landing first, then its tables.

    Attributes:
        paused: nothing of it starts by itself.
        starts: what starts it, or why nothing does.
        runs: a line for each run under way.
        last_error: the error of its last run, if that failed.
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
    """The state of all pipelines; of none without a connections file. Reports systems that do not answer in seconds.

    Args:
        only: these pipelines, or topics of them.

    Raises:
        ConfigurationError: a name is no pipeline, or its file is wrong.
    """
    if not only and not connections_path().exists():
        return Status()
    for name in only:
        pipeline_file(name)
    connections, names = load_connections(), only or pipeline_names()
    specs = readable_specs(names)
    asking = Asking()
    with used_instance() as instance:
        state = dagster_state(instance, specs)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda name: _status(name, connections, state, asking), names))
        stale = stale_keys(instance, specs)  # last: the look above has found new topics and tables
    return Status(daemon=state.daemon, pipelines=[_with_stale(one, stale) for one in found])


def _with_stale(found: PipelineStatus, stale: Mapping[tuple[str, str], int]) -> PipelineStatus:
    name = split_name(found.name)[0]
    tables = [table.model_copy(update={"stale_keys": stale.get((name, table.name), 0)}) for table in found.tables]
    return found.model_copy(update={"tables": tables})


def _status(name: str, connections: Connections, state: DagsterState, asking: Asking) -> PipelineStatus:
    pipeline = split_name(name)[0]
    pauses = state.pauses.get(pipeline) or Pauses(pipeline)
    try:
        spec = pipeline_spec(name)
        members, held = open_members(name, connections), [pauses.tables.get(table_key(one)) for one in spec.tables]
        tables = _of_members(members, held, asking) if members else _of_pipeline(name, spec, connections, held, asking)
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


def _of_pipeline(
    name: str, spec: PipelineSpec, connections: Connections, held: Held, asking: Asking
) -> list[TableStatus]:
    def opened() -> Pipeline:
        return open_pipeline(name, connections)

    # Opening looks up the columns and tables that records have brought.
    return _tables(asking.ask(spec.intermediate.connection, name, opened), held, asking)


def _of_members(members: Members, held: Held, asking: Asking) -> list[TableStatus]:
    """The landing and the tables of every topic, with one query to Kafka for all topics."""
    kafka = members.spec.source.connection
    try:
        seen = asking.ask(kafka, "Kafka", members.look)
    except BatchmergeError:
        asking.gave_up(kafka)
        seen = Seen(members.known(), {})
    found = list(members.each_seen("status", seen, lambda pipeline, topics: _tables(pipeline, held, asking, topics)))
    by_topic = {outcome.topic: outcome.done or [] for outcome in found}
    problems = {**seen.failed, **{outcome.topic: outcome.problem for outcome in found if outcome.problem}}
    failed = [TableStatus(name=f"topic {t}", topic=t, problem=str(problem)) for t, problem in problems.items()]
    return [*(table for topic in sorted(by_topic) for table in by_topic[topic]), *failed]


def _tables(pipeline: Pipeline, held: Held, asking: Asking, topics: TopicState | None = None) -> list[TableStatus]:
    """The landing, then the tables, queried side by side."""
    ends = topics.stable if topics else _ends(pipeline, asking)
    questions = [_about_landing(pipeline), *map(_about, pipeline.destinations())]
    tables = _answers(questions, ends, asking)
    topic = pipeline.spec.source.topics[0] if pipeline.part_of else None
    # Tables are in the order of the entries, once for each topic or name.
    paused = [None, *islice(cycle(str(pause) if pause else None for pause in held), len(tables) - 1)]
    return [t.model_copy(update={"topic": topic, "paused": by}) for t, by in zip(tables, paused, strict=True)]


def _starts(name: str, spec: PipelineSpec, state: DagsterState) -> str:
    ways = {f"{name}_schedule": f"its schedule ({spec.cron})"}
    if spec.interval:
        ways = {continuous_job(name): f"its sensor {continuous_job(name)}"}
    if spec.trigger:
        ways[f"{name}_lag"] = "its trigger"
    on = [way for instigator, way in ways.items() if instigator not in state.stopped]
    off = [f"{way} is stopped in Dagster" for instigator, way in ways.items() if instigator in state.stopped]
    what = f"keeps a run that commits every {spec.interval}" if spec.interval else "starts runs"
    return "; ".join([f"{' and '.join(on)} {what if len(on) == 1 else 'start runs'}"] * bool(on) + off)


@dataclass(frozen=True)
class _Question:
    """The queries about a table: its committed state, and a count for the field `counted` of `TableStatus`."""

    name: str
    connection: str
    ask: Callable[[], CommittedState | None]
    counted: str
    count: Callable[[], int]


def _about_landing(pipeline: Pipeline) -> _Question:
    place, connection = pipeline.intermediate, pipeline.spec.intermediate.connection
    return _Question(
        f"landing {place.identifier}", connection, place.committed, "dead_letters", lambda: open_count(place)
    )


def _about(table: Destination) -> _Question:
    def refused() -> int:
        return sum(table.refused().values())

    return _Question(table.name, table.table.connection, table.committed, "refused", refused)


def _ends(pipeline: Pipeline, asking: Asking) -> Offsets | None:
    try:
        return asking.ask(pipeline.spec.source.connection, "Kafka", pipeline.topic_state).stable
    except BatchmergeError:
        return None


def _answers(questions: Sequence[_Question], ends: Offsets | None, asking: Asking) -> list[TableStatus]:
    with ThreadPoolExecutor(min(len(questions), _AT_ONCE)) as pool:
        return list(pool.map(lambda question: _answer(question, ends, asking), questions))


def _answer(question: _Question, ends: Offsets | None, asking: Asking) -> TableStatus:
    name, connection = question.name, question.connection
    try:
        state = asking.ask(connection, name, question.ask)
        number = asking.ask(connection, name, question.count) if state else 0
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
        **{question.counted: number},
    )

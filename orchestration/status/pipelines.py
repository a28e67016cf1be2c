"""The state of the pipelines, for `batchmerge status`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle

from jobs.batch import CommittedState
from jobs.behind import caught_up_through, lag_behind
from jobs.circuit_breaker import CircuitBreaker
from jobs.connections_file import connections_path, load_connections, no_connections
from jobs.dead_letters.open_count import open_count
from jobs.destinations.base import Destination
from jobs.members.members import Members
from jobs.members.topics import Seen
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.spec.pipeline import PipelineSpec
from orchestration.files import (
    open_members,
    open_pipeline,
    paused_in_file,
    pipeline_file,
    pipeline_names,
    pipeline_spec,
    readable_specs,
    split_name,
)
from orchestration.known_tables import known_tables
from orchestration.names import continuous_job
from orchestration.status.dagster_answers import AsksDagster, DagsterState, TableKey
from orchestration.status.ticks import tick_problems
from orchestration.status.values import PipelineStatus, Status, TableStatus
from resources.connections import Connections
from resources.errors import BatchmergeError, TerminalError, TransientError

# Tables of a pipeline that are queried at once, at most.
_AT_ONCE = 32
# Waits for Kafka's last stable offsets, or for the reason why they are not known.
WaitForEnds = Callable[[], TopicState | BatchmergeError]


def pipeline_status(dagster: AsksDagster, only: Sequence[str] = ()) -> Status:
    """The state of all pipelines; of none without a connections file. Reports systems that do not answer in seconds.

    Args:
        dagster: says what Dagster knows of them; it is asked while the systems are.
        only: these pipelines, or topics of them.

    Raises:
        ConfigurationError: a name is no pipeline, or its file is wrong.
    """
    if not only and (missing := no_connections(connections_path())):
        return Status(no_connections=str(missing) if pipeline_names() else None)
    for name in only:
        pipeline_file(name)
    connections, names = load_connections(), only or pipeline_names()
    specs = readable_specs(names)
    breaker = CircuitBreaker()
    keys = {name: [table.full_path for table in spec.tables] for name, spec in specs.items()}
    state = Future[DagsterState]()
    with ThreadPoolExecutor(8) as pool:
        try:
            answers = [pool.submit(_status, name, connections, state, breaker) for name in names]
            state.set_result(_state(dagster, keys))
            found = [answer.result() for answer in answers]
        except BaseException:  # Ctrl-C: nobody waits for an answer
            breaker.end()
            state.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    known, stale = state.result(), dict[tuple[str, str], int]()
    problem = known.problem
    try:
        if not problem:
            stale = _stale_keys(dagster, specs)  # last: the look above has found new topics and tables
    except BatchmergeError as failed:
        problem = str(failed)
    return Status(daemon=known.daemon, pipelines=[_with_stale(one, stale) for one in found], problem=problem)


def _state(dagster: AsksDagster, keys: Mapping[str, Sequence[TableKey]]) -> DagsterState:
    try:
        return dagster.state(keys)
    except BatchmergeError as problem:
        return DagsterState(problem=str(problem))


def _stale_keys(dagster: AsksDagster, specs: Mapping[str, PipelineSpec]) -> dict[tuple[str, str], int]:
    """The number of stale keys at each table's last merge, by pipeline and table."""
    known = [(name, one.table) for name, spec in specs.items() for one in known_tables(name, spec)]
    tables = {(name, table.title): table.full_path for name, table in known}
    return dict(zip(tables, dagster.stale_keys(list(tables.values())), strict=True))


def _with_stale(found: PipelineStatus, stale: Mapping[tuple[str, str], int]) -> PipelineStatus:
    name = split_name(found.name)[0]
    tables = [table.model_copy(update={"stale_keys": stale.get((name, table.name), 0)}) for table in found.tables]
    return found.model_copy(update={"tables": tables})


def _status(
    name: str, connections: Connections, dagster: Future[DagsterState], breaker: CircuitBreaker
) -> PipelineStatus:
    pipeline = split_name(name)[0]
    try:
        spec, members = pipeline_spec(name), open_members(name, connections)
        tables = _of_members(members, breaker) if members else _of_pipeline(name, spec, connections, breaker)
    except BatchmergeError as problem:
        return PipelineStatus(name=name, tables=[], problem=str(problem), transient=isinstance(problem, TransientError))
    state = dagster.result()
    paused = state.paused.get(pipeline) or paused_in_file(pipeline, spec)
    return PipelineStatus(
        name=name,
        tables=_with_pauses(tables, state.tables_paused.get(pipeline) or [None]),
        paused=paused is not None,
        starts=f"nothing starts: {paused}" if paused else _starts(pipeline, spec, state),
        ticks=tick_problems(pipeline, spec, state, datetime.now(UTC)),
        runs=state.runs.get(pipeline, []),
        last_error=state.errors.get(pipeline),
        maintenance_error=state.maintenance_errors.get(pipeline),
    )


def _with_pauses(tables: Sequence[TableStatus], paused: Sequence[str | None]) -> list[TableStatus]:
    """The tables with the pauses of their entries: they are in the order of the entries, once for each topic or name,
    after the landing."""
    entries, found = cycle(paused), list[TableStatus]()
    for table in tables:
        if table.is_landing:
            entries = cycle(paused)
        found.append(table if table.is_landing else table.model_copy(update={"paused": next(entries)}))
    return found


def _of_pipeline(name: str, spec: PipelineSpec, connections: Connections, breaker: CircuitBreaker) -> list[TableStatus]:
    def opened() -> Pipeline:
        return open_pipeline(name, connections)

    # Opening looks up the columns and tables that records have brought.
    return _tables(breaker.call(spec.intermediate.connection, name, opened), breaker)


def _of_members(members: Members, breaker: CircuitBreaker) -> list[TableStatus]:
    """The landing and the tables of every topic, with one query to Kafka for all topics."""
    kafka = members.spec.source.connection
    try:
        seen = breaker.call(kafka, "Kafka", members.look)
    except BatchmergeError:
        breaker.open(kafka)
        seen = Seen(members.remembered(), {})
        if not seen.members:  # there would be no line that says so
            raise
    found = list(members.each_seen("status", seen, lambda pipeline, topics: _tables(pipeline, breaker, topics)))
    by_topic = {outcome.key: outcome.done or [] for outcome in found}
    problems = {**seen.failed, **{outcome.key: outcome.problem for outcome in found if outcome.problem}}
    failed = [TableStatus(name=f"topic {t}", topic=t, problem=str(problem)) for t, problem in problems.items()]
    return [*(table for topic in sorted(by_topic) for table in by_topic[topic]), *failed]


def _tables(pipeline: Pipeline, breaker: CircuitBreaker, topics: TopicState | None = None) -> list[TableStatus]:
    """The landing, then the tables, queried side by side, and Kafka beside them."""
    questions = [_about_landing(pipeline), *map(_about, pipeline.destinations())]
    topic = pipeline.spec.source.topics[0] if pipeline.part_of else None
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(lambda: topics or _ends(pipeline, breaker))
        answers = _answers(questions, ends.result, breaker)
    return [table.model_copy(update={"topic": topic}) for table in answers]


def _starts(name: str, spec: PipelineSpec, state: DagsterState) -> str:
    if state.problem:
        return "what starts it is not known"
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


def _ends(pipeline: Pipeline, breaker: CircuitBreaker) -> TopicState | BatchmergeError:
    try:
        return breaker.call(pipeline.spec.source.connection, "Kafka", pipeline.topic_state)
    except BatchmergeError as problem:
        return problem


def _answers(questions: Sequence[_Question], ends: WaitForEnds, breaker: CircuitBreaker) -> list[TableStatus]:
    with ThreadPoolExecutor(min(len(questions), _AT_ONCE)) as pool:
        return list(pool.map(lambda question: _answer(question, ends, breaker), questions))


def _answer(question: _Question, ends: WaitForEnds, breaker: CircuitBreaker) -> TableStatus:
    name, connection = question.name, question.connection
    try:
        state = breaker.call(connection, name, question.ask)
        number = breaker.call(connection, name, question.count) if state else 0
    except BatchmergeError as problem:
        return TableStatus(name=name, problem=str(problem))
    vtts, now = state.watermark.vtts if state else None, datetime.now(UTC)
    known = ends()
    lag = lag_behind(known.stable, state, known.first) if isinstance(known, TopicState) else None
    through = caught_up_through(state.watermark if state else None, lag, now)
    return TableStatus(
        name=name,
        batch=state.batch_number if state else None,
        lag=lag,
        lag_unknown=known.what if isinstance(known, TerminalError) else None,
        seconds_behind=round((now - through).total_seconds(), 1) if through else None,
        caught_up_through=through,
        vtts=datetime.fromtimestamp(vtts / 1000, UTC) if vtts is not None else None,
        **{question.counted: number},
    )

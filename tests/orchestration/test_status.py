"""`batchmerge status` in plain words: what starts a pipeline, what keeps it from it, what its tables lack."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import psutil
import pytest
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, InstigatorType, TickData, TickStatus
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.types import DaemonHeartbeat
from dagster_shared.error import SerializableErrorInfo

from jobs.circuit_breaker import CircuitBreaker
from jobs.members.known_topics import remember
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli import dagster_child
from orchestration.cli.dagster_child import DagsterChild
from orchestration.cli.instance import dagster_home
from orchestration.cli.status import _pipelines, exit_code
from orchestration.components import metadata
from orchestration.metrics import measures
from orchestration.metrics.tables import table_samples
from orchestration.names import MAINTENANCE_TAG, PIPELINE_TAG, VERIFY_TAG
from orchestration.pauses import pause
from orchestration.status import pipelines
from orchestration.status.dagster_answers import AsksDagster, DagsterState, Tick, used_home
from orchestration.status.dagster_state import DagsterHere, used_instance
from orchestration.status.pipelines import (
    _answer,
    _answers,
    _Question,
    _stale_keys,
    _starts,
    _tables,
    _with_pauses,
    pipeline_status,
)
from orchestration.status.ticks import tick_problems
from orchestration.status.values import PipelineStatus, Status, TableStatus
from resources.errors import BatchmergeError, TimeLimitReached, TopicMissing, Unavailable
from tests.kit import specs
from tests.kit.connections_file import write_connections
from tests.kit.flow import ROOT, Flow
from tests.kit.waiting import PATIENCE


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    return tmp_path / "dagster"


@contextmanager
def here() -> Iterator[AsksDagster]:
    with used_instance() as instance:
        yield DagsterHere(instance)


@pytest.mark.parametrize("named", ["", None])
def test_an_empty_variable_names_no_folder(named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "") if named == "" else monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert used_home() is None
    assert dagster_home() == used_home() == tmp_path / "dagster"


IN_BOTH_PROCESSES = pytest.mark.parametrize("asking_dagster", [here, DagsterChild])
Asks = Callable[[], AbstractContextManager[AsksDagster]]


@IN_BOTH_PROCESSES
def test_nothing_is_known_where_dagster_was_never_used(home: Path, asking_dagster: Asks) -> None:
    with asking_dagster() as dagster:
        assert dagster.state({"p": [["iceberg", "a", "t"]]}) == DagsterState()
        assert dagster.stale_keys([["iceberg", "a", "t"]]) == [0]
    assert not home.exists()


@IN_BOTH_PROCESSES
@pytest.mark.parametrize(("silent_for", "runs"), [(5, True), (600, False)])
def test_a_daemon_runs_as_long_as_it_says_so(home: Path, silent_for: int, runs: bool, asking_dagster: Asks) -> None:
    home.mkdir()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        beat = DaemonHeartbeat(time.time() - silent_for, "SCHEDULER", str(uuid.uuid4()), [])
        instance.add_daemon_heartbeat(beat)
        run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.STARTED, tags={PIPELINE_TAG: "p"})
        spec = Flow("t", ["append"]).spec
        pause(instance, "q", spec, spec.tables[0], "anna")
    tables = [["iceberg", "a", "another"], spec.tables[0].full_path]
    with asking_dagster() as dagster:
        found = dagster.state({"p": tables, "q": tables})
    assert (found.daemon, found.errors) == (runs, {})
    assert found.runs == {"p": [f"run {run.run_id[:8]} is started"], "q": []}
    assert (found.paused, found.tables_paused["p"], found.tables_paused["q"][0]) == ({}, [None, None], None)
    assert str(found.tables_paused["q"][1]).startswith("paused by anna since")


@IN_BOTH_PROCESSES
def test_runs_are_shown_and_their_errors_however_they_were_launched(home: Path, asking_dagster: Asks) -> None:
    home.mkdir()
    table, status = ["iceberg", "a", "t"], dg.DagsterRunStatus
    on_table: dict[str, Any] = {"job_name": "__ASSET_JOB", "asset_selection": frozenset({dg.AssetKey(table)})}
    kinds: list[tuple[str, dg.DagsterRunStatus, dict[str, Any]]] = [
        ("", status.CANCELING, {"job_name": "p", "tags": {PIPELINE_TAG: "p"}}),
        (" (launched on assets)", status.STARTED, on_table),
        (" (p_verify)", status.STARTED, {"job_name": "p_verify", "tags": {VERIFY_TAG: "p"}}),
        (" (p_maintenance)", status.STARTED, {"job_name": "p_maintenance", "tags": {MAINTENANCE_TAG: "p"}}),
    ]
    with dg.DagsterInstance.from_config(str(home)) as instance:
        runs = [create_run_for_test(instance, status=status, **launched) for _, status, launched in kinds]
        create_run_for_test(instance, job_name="p", status=status.SUCCESS, tags={PIPELINE_TAG: "p"})
        failed = create_run_for_test(instance, status=status.FAILURE, **on_table)
    with asking_dagster() as dagster:
        found = dagster.state({"p": [table], "q": [["iceberg", "a", "another"]]})
    shown = zip(runs, kinds, strict=True)
    lines = [f"run {run.run_id[:8]}{what} is {status.value.lower()}" for run, (what, status, _) in shown]
    assert {name: sorted(of_it) for name, of_it in found.runs.items()} == {"p": sorted(lines), "q": []}
    assert found.errors == {"p": f"run {failed.run_id} failed"}


class TestChild:
    """The child that asks Dagster fails, hangs, is left alone."""

    @pytest.fixture
    def child(self, home: Path) -> Iterator[DagsterChild]:
        home.mkdir()
        with DagsterChild() as child:
            yield child

    def test_one_that_was_killed_is_reported(self, child: DagsterChild) -> None:
        process_of(child).kill()
        with pytest.raises(Unavailable, match=r"dagster\).*ended with exit code -9"):
            child.state({})

    def test_its_error_is_printed(self, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
        home.mkdir()
        (home / "dagster.yaml").write_text("no_such_setting: 1\n")
        with DagsterChild() as child, pytest.raises(Unavailable, match="exit code 1"):
            child.state({})
        assert "no_such_setting" in capfd.readouterr().err

    def test_one_that_hangs_is_ended(self, child: DagsterChild, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dagster_child, "_LIMIT", 0.5)
        monkeypatch.setattr(dagster_child, "_FOR_EACH", 0.25)
        process = process_of(child)
        process.suspend()
        with pytest.raises(Unavailable, match=r"no answer within 1 s.*Dagster|Dagster.*no answer within 1 s"):
            child.state({"p": [], "q": []})
        process.wait(PATIENCE)
        monkeypatch.setattr(dagster_child, "_LIMIT", float(PATIENCE))
        assert child.state({}) == DagsterState()
        assert process_of(child).pid != process.pid, "another child"

    def test_it_ends_with_the_command(self, home: Path) -> None:
        home.mkdir()
        script = (
            "import time; from orchestration.cli.dagster_child import DagsterChild; child = DagsterChild(); "
            "print(child._process.pid, flush=True); time.sleep(600)"
        )
        with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as command:
            assert command.stdout
            left = psutil.Process(int(command.stdout.readline()))
            command.kill()
        left.wait(PATIENCE)


@dataclass(frozen=True)
class Answers(AsksDagster):
    """A Dagster that answers this, or fails."""

    known: Callable[[], DagsterState]

    def state(self, _: object) -> DagsterState:
        return self.known()

    def stale_keys(self, tables: Sequence[object]) -> list[int]:
        return [0] * len(tables)


class TestLook:
    """A look at two pipelines, whose system answers late."""

    @pytest.fixture(autouse=True)
    def asked(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
        """What the system does when it is asked, before it hangs."""
        del home
        answer = threading.Event()
        does: list[Callable[[], object]] = [lambda: None, answer.set]

        def tables(name: str, _: object, __: object, breaker: CircuitBreaker) -> list[TableStatus]:
            breaker.call("lake", name, lambda: (does[0](), answer.wait(PATIENCE)))
            return [TableStatus(name=f"iceberg a.{name}", batch=7)]

        spec = Flow("t", ["append"]).spec
        for what, instead in {
            "connections_path": lambda: ROOT,
            "load_connections": dict,
            "pipeline_names": lambda: ["p", "q"],
            "readable_specs": lambda _: {},
            "pipeline_spec": lambda _: spec,
            "open_members": lambda *_: None,
            "_of_pipeline": tables,
        }.items():
            monkeypatch.setattr(pipelines, what, instead)
        yield does
        answer.set()

    def test_tables_are_shown_where_dagster_cannot_be_asked(self, asked: list[Callable[[], object]]) -> None:
        def gone() -> DagsterState:
            asked[1]()
            raise Unavailable("no database")

        found = pipeline_status(Answers(gone))
        assert found.problem == "no database"
        assert [pipeline.tables[0].batch for pipeline in found.pipelines] == [7, 7]
        assert _pipelines(found)[:2] == ["no database", "pipeline p: what starts it is not known"]

    @pytest.mark.parametrize("while_asking", ["Dagster", "systems"])
    def test_an_interrupt_waits_for_no_answer(self, while_asking: str, asked: list[Callable[[], object]]) -> None:
        once = threading.Semaphore(1)

        def interrupt() -> DagsterState:
            if once.acquire(blocking=False):  # two pipelines ask at the same time
                os.kill(os.getpid(), signal.SIGINT)
            return DagsterState()

        asked[0] = interrupt if while_asking == "systems" else asked[0]
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            pipeline_status(Answers(interrupt if while_asking == "Dagster" else DagsterState))
        assert time.monotonic() - begun < PATIENCE / 2, "not until the system's time limit is over"


def process_of(child: DagsterChild) -> psutil.Process:
    assert child._process
    return psutil.Process(child._process.pid)


def test_what_starts_a_pipeline() -> None:
    spec = Flow("t", ["append"], overrides={"cron": "0 5 * * *", "trigger": {"records": 5}}).spec
    assert _starts("p", spec, DagsterState()) == "its schedule (0 5 * * *) and its trigger start runs"
    stopped = DagsterState(stopped=frozenset({"p_lag"}))
    assert _starts("p", spec, stopped) == "its schedule (0 5 * * *) starts runs; its trigger is stopped in Dagster"


def test_a_paused_pipeline_and_its_dead_letters() -> None:
    tables = [
        TableStatus(
            name="landing lake.a_name_of_more_than_thirty_characters_tmp",
            batch=3,
            lag=0,
            seconds_behind=0,
            dead_letters=1200,
        ),
        TableStatus(name="iceberg a.u", batch=2, lag=4, seconds_behind=400, paused="paused by anna since now"),
        TableStatus(name="iceberg a.t", batch=2, lag=None, vtts=datetime(2026, 5, 1, tzinfo=UTC), dead_letters=0),
        TableStatus(name="clickhouse a.t", problem="no answer"),
        TableStatus(name="clickhouse a.u", batch=2, lag=0, refused=7, stale_keys=5),
    ]
    paused = PipelineStatus(name="p", starts="nothing starts by itself: p is paused", tables=tables, last_error="why")
    lines = _pipelines(Status(daemon=True, pipelines=[paused]))
    assert lines[0] == "Dagster's daemon runs: schedules and sensors start runs."
    assert lines[1:3] == ["pipeline p: nothing starts by itself: p is paused", "  last run failed: why"]
    assert [line.split(maxsplit=2)[2] for line in lines[3:8]] == [
        "batch 3, caught up, 1,200 dead letters",
        "paused by anna since now, batch 2, 4 records and 7 min behind",
        "batch 2, lag unknown: Kafka does not answer, complete through 2026-05-01 00:00:00 UTC",
        "no answer",
        "batch 2, caught up, 7 rows refused, 5 stale keys",
    ]
    assert any("VTTS" in line for line in lines)
    assert _pipelines(Status()) == []


@pytest.mark.parametrize(
    ("pipeline", "code"),
    [
        (PipelineStatus(name="p", tables=[TableStatus(name="landing t")]), 0),
        (PipelineStatus(name="p", tables=[TableStatus(name="landing t", problem="no answer")]), 3),
        (PipelineStatus(name="p", tables=[], problem="no answer", transient=True), 3),
        (PipelineStatus(name="p", tables=[], problem="a mistake in its file"), 2),
    ],
)
def test_what_cannot_be_asked_or_read_is_in_the_exit_code(pipeline: PipelineStatus, code: int) -> None:
    fine = PipelineStatus(name="q", tables=[])
    silent = PipelineStatus(name="r", tables=[], problem="no answer", transient=True)
    assert exit_code([fine, pipeline]) == code
    assert exit_code([silent, pipeline]) == (code or 3)


def test_pauses_are_those_of_the_entries_after_each_landing() -> None:
    names = ["landing a", "iceberg a", "iceberg b", "iceberg c", "iceberg d", "landing b", "iceberg e", "topic c"]
    tables = [TableStatus(name=name) for name in names]
    paused = [table.paused for table in _with_pauses(tables, ["held", None])]
    assert paused == [None, "held", None, "held", None, None, "held", None]
    assert _with_pauses(tables, [None]) == tables


class Asked:
    """A table of many, which answers or not."""

    def __init__(self, answers: bool) -> None:
        self.answers, self.times = answers, 0

    def __call__(self) -> None:
        self.times += 1
        if not self.answers:
            raise TimeLimitReached("no answer within the time limit")


NO_ANSWER = Unavailable("no answer", where="kafka")


def test_a_system_that_leaves_many_tables_without_an_answer_is_not_asked_about_the_others() -> None:
    away, there, breaker = Asked(answers=False), Asked(answers=True), CircuitBreaker()
    problems = []
    for _ in range(5):
        found = _answer(
            _Question("clickhouse a.t", "clickhouse", away, "refused", lambda: 0), lambda: NO_ANSWER, breaker
        )
        problems.append(str(found.problem))
        found = _answer(_Question("iceberg a.t", "lake", there, "refused", lambda: 0), lambda: NO_ANSWER, breaker)
        assert found.problem is None
    assert (away.times, there.times) == (3, 5)
    assert "no answer within the time limit" in problems[0]
    assert "not queried: clickhouse has just left 3 queries unanswered" in problems[-1]


def _given(problem: BatchmergeError) -> BatchmergeError:
    return problem


def test_a_lag_that_is_not_known_says_why() -> None:
    """A topic that is missing is no Kafka that is away."""
    there = _Question("iceberg a.t", "lake", lambda: None, "refused", lambda: 0)
    missing = TopicMissing("topic orders does not exist", where="pipeline p", remedy="create it")
    for problem, why in ((missing, "topic orders does not exist"), (NO_ANSWER, "Kafka does not answer")):
        found = _answer(there, partial(_given, problem), CircuitBreaker())
        (line,) = _pipelines(Status(pipelines=[PipelineStatus(name="p", tables=[found])]))[2:3]
        assert line == f"  iceberg a.t  batch 0, lag unknown: {why}"


def test_tables_are_asked_side_by_side() -> None:
    both = threading.Barrier(2, timeout=PATIENCE)

    def ask() -> None:
        both.wait()

    questions = [_Question(f"iceberg a.{name}", "lake", ask, "refused", lambda: 0) for name in "tu"]
    assert [found.problem for found in _answers(questions, lambda: NO_ANSWER, CircuitBreaker())] == [None, None]


def test_kafka_is_asked_beside_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=PATIENCE)

    def ends(*_: object) -> TopicState:
        both.wait()
        return TopicState({}, {}, {})

    def ask() -> None:
        both.wait()

    monkeypatch.setattr(pipelines, "_ends", ends)
    monkeypatch.setattr(pipelines, "_about_landing", lambda _: _Question("landing", "lake", ask, "refused", lambda: 0))
    one = SimpleNamespace(destinations=list, part_of=None)
    assert [(t.problem, t.lag) for t in _tables(cast(Pipeline, one), CircuitBreaker())] == [(None, 0)]


def test_a_system_that_hangs_is_named_and_the_others_are_shown(
    stack: Path,
    topic: Callable[..., str],
    home: Path,
    tmp_path: Path,
    silent_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del home
    file = write_connections(stack, tmp_path, clickhouse={"kind": "clickhouse", "endpoints": [silent_server]})
    flow = Flow(topic(), ["append"], name="p")
    tables = [flow.spec_document["tables"][0], specs.table("clickhouse", name="a.t")]
    specs.write(tmp_path / "defs", "p", {**flow.spec_document, "tables": tables})
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(file))
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path / "defs")
    call = CircuitBreaker.call

    def patient(self: CircuitBreaker, connection: str, name: str, question: Callable[[], object]) -> object:
        """A busy machine is no silent system."""
        return call(self, connection, name, question, 3 if connection == "clickhouse" else PATIENCE)

    monkeypatch.setattr(CircuitBreaker, "call", patient)
    with here() as dagster:
        status = pipeline_status(dagster)
    samples = {s.labels: s.value for s in table_samples(status) if s.measure == measures.UP}
    assert samples == {("p", "landing"): 1, ("p", "iceberg tests.p_append"): 1, ("p", "clickhouse a.t"): 0}
    (found,) = status.pipelines
    assert [table.lag for table in found.tables] == [0, 0, None]
    assert "no answer within the time limit" in str(found.tables[2].problem)


@IN_BOTH_PROCESSES
def test_stale_keys_are_those_of_the_tables_that_an_entry_stands_for(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking_dagster: Asks
) -> None:
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path / "data"))
    columns = {"format": "json", "columns": {"id": "long"}}
    each = specs.table("iceberg", name="shop.{topic[1]}")
    many = PipelineSpec.model_validate(
        {"source": {"pattern": r"s\..+", "for_each": "topic", "value": columns}, "tables": [each]}
    )
    named = PipelineSpec.model_validate(
        {
            "source": {"topics": ["t"], "value": {**columns, "columns": {"id": "long", "kind": "string"}}},
            "route_by": "kind",
            "new_tables": {},
            "tables": [{**each, "table": "named.{route_by}"}],
        }
    )
    remember("many", ["s.a", "s.b"])
    remember("named", ["login"])
    home.mkdir()

    with dg.DagsterInstance.from_config(str(home)) as instance:
        for key, stale in ((["shop", "a"], 3), (["shop", "b"], 0), (["named", "login"], 2)):
            newest = dg.AssetMaterialization(dg.AssetKey(["iceberg", *key]), metadata=metadata.stale_keys(stale))
            instance.report_runless_asset_event(newest)
    with asking_dagster() as dagster:
        assert _stale_keys(dagster, {"many": many, "named": named}) == {
            ("many", "iceberg shop.a"): 3,
            ("many", "iceberg shop.b"): 0,
            ("named", "iceberg named.login"): 2,
        }


_NOW = datetime(2026, 5, 1, 12, 3, tzinfo=UTC)


def _ticked(minutes: float, problem: str | None = None) -> Tick:
    return Tick(at=_NOW - timedelta(minutes=minutes), problem=problem)


@pytest.mark.parametrize(
    ("parts", "ticks", "says"),
    [
        ({}, {}, []),
        ({}, {"p_schedule": _ticked(3)}, []),
        ({}, {"p_schedule": _ticked(8)}, []),
        ({}, {"p_schedule": _ticked(13)}, ["p_schedule has not ticked since 2026-05-01 11:50 UTC: its code location"]),
        ({}, {"p_schedule": _ticked(3, "OSError")}, ["p_schedule: the tick of 12:00:00 UTC failed (OSError)"]),
        ({}, {"p_lag": _ticked(60)}, []),
        ({"trigger": {"records": 1}}, {"p_lag": _ticked(6)}, ["p_lag has not ticked since"]),
        ({"interval": "5s"}, {"p_continuous": _ticked(6), "p_schedule": _ticked(99)}, ["p_continuous has not ticked"]),
        ({"maintenance": {"cron": "20 3 * * *"}}, {"p_maintenance_schedule": _ticked(24 * 60)}, []),
        (
            {"maintenance": {"cron": "20 3 * * *"}},
            {"p_maintenance_schedule": _ticked(3 * 24 * 60)},
            ["p_maintenance_schedule has not ticked since 2026-04-28"],
        ),
    ],
)
def test_a_schedule_that_does_not_tick_or_fails(parts: dict[str, Any], ticks: dict[str, Tick], says: list[str]) -> None:
    spec = specs.spec(**parts)
    found = tick_problems("p", spec, DagsterState(daemon=True, ticks=ticks), _NOW)
    assert [line[: len(begin)] for line, begin in zip(found, says, strict=True)] == says
    assert tick_problems("p", spec, DagsterState(daemon=False, ticks=ticks), _NOW) == []
    assert tick_problems("p", spec, DagsterState(daemon=True, ticks=ticks, stopped=frozenset(ticks)), _NOW) == []
    shown = _pipelines(Status(daemon=True, pipelines=[PipelineStatus(name="p", tables=[], ticks=found)]))
    assert shown[2 : 2 + len(found)] == [f"  {line}" for line in found]


@IN_BOTH_PROCESSES
def test_the_newest_tick_is_known_without_the_text_of_its_error(home: Path, asking_dagster: Asks) -> None:
    home.mkdir()
    cause = SerializableErrorInfo("OSError: a secret\n", [], "OSError")
    error = SerializableErrorInfo("SensorExecutionError: …", [], "SensorExecutionError", cause)
    ticks = {"p_lag": (TickStatus.FAILURE, error), "p_schedule": (TickStatus.SKIPPED, None)}
    with dg.DagsterInstance.from_config(str(home)) as instance:

        def tick(location: str, name: str, status: InstigatorStatus, *at: float) -> None:
            place = ManagedGrpcPythonEnvCodeLocationOrigin(LoadableTargetOrigin(module_name="m"), location)
            origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(place, "r"), name)
            state = instance.add_instigator_state(InstigatorState(origin, InstigatorType.SENSOR, status))
            names, (ended, failed) = (state.instigator_origin_id, name), ticks[name]
            for one in at:
                data = TickData(*names, InstigatorType.SENSOR, ended, one, error=failed, selector_id=state.selector_id)
                instance.create_tick(data)

        for name in ticks:
            tick("now", name, InstigatorStatus.RUNNING, 50.0, 100.0)
            tick("before it got another name", name, InstigatorStatus.STOPPED, 10.0)
    with asking_dagster() as dagster:
        found = dagster.state({})
    at = datetime.fromtimestamp(100, UTC)
    assert found.ticks == {"p_lag": Tick(at=at, problem="OSError"), "p_schedule": Tick(at=at)}
    assert found.stopped == frozenset()


@IN_BOTH_PROCESSES
@pytest.mark.parametrize("newest", ["FAILURE", "SUCCESS"])
def test_maintenance_that_fails_is_shown_until_it_succeeds(home: Path, asking_dagster: Asks, newest: str) -> None:
    """Nothing else says so: the pipeline's runs go on, and its metrics are about them."""
    home.mkdir()
    tags = {MAINTENANCE_TAG: "p"}
    with dg.DagsterInstance.from_config(str(home)) as instance:
        failed = create_run_for_test(instance, job_name="p_maintenance", status=dg.DagsterRunStatus.FAILURE, tags=tags)
        if newest == "SUCCESS":
            create_run_for_test(instance, job_name="p_maintenance", status=dg.DagsterRunStatus.SUCCESS, tags=tags)
    with asking_dagster() as dagster:
        found = dagster.state({"p": [], "q": []})
    errors = {"p": f"run {failed.run_id} failed"} if newest == "FAILURE" else {}
    assert (found.errors, found.maintenance_errors) == ({}, errors)
    shown = _pipelines(Status(pipelines=[PipelineStatus(name="p", tables=[], maintenance_error=errors.get("p"))]))
    assert ("  last maintenance failed: run" in str(shown)) is bool(errors)

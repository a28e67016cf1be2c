"""A look at a system that hangs is given up, and the tick or the step says so. Without services."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from jobs import protocol
from jobs.circuit_breaker import CircuitBreaker
from jobs.members.members import Members
from jobs.pipeline import Pipeline
from jobs.spec.members import Member, expand
from jobs.spec.pipeline import PipelineSpec
from orchestration.components import checks, landing
from orchestration.components.member_steps import behind
from orchestration.components.suspended_members import SuspendedMembers
from orchestration.components.window import Window
from orchestration.continuous.landing import Landing
from orchestration.continuous.members import LandingOfMembers, MergingOfMembers
from orchestration.continuous.merging import Merging
from orchestration.continuous.step import ContinuousStep, Work
from orchestration.sensors import lag
from resources.connections import Connections
from resources.errors import BatchmergeError, TimeLimitReached, Unavailable
from tests.kit.batches import landed
from tests.kit.flow import Flow
from tests.kit.many_topics import document, topics
from tests.kit.waiting import PATIENCE

FLOW = Flow(
    "t",
    ["append"],
    name="p",
    overrides={"trigger": {"records": 1}, "batch": {"time_limit_seconds": 1}},
    table_options={"time_limit_seconds": 1},
)
HOURS = dg.HourlyPartitionsDefinition(start_date=FLOW.spec.since, end_offset=1)


class Opened(SimpleNamespace):
    """A pipeline of which a test says what it answers."""

    stop = staticmethod(lambda: None)
    in_time = Pipeline.in_time
    land_in_time = Pipeline.land_in_time


def opened(**answers: object) -> Any:
    return Opened(**{"name": "p", "spec": FLOW.spec, **answers})


@pytest.fixture
def hangs() -> Iterator[Callable[..., Any]]:
    """It answers nothing, as long as the test runs."""
    answer = threading.Event()
    yield lambda *_, **__: answer.wait(PATIENCE)
    answer.set()


def test_the_tick_of_the_lag_sensor_says_it(
    hangs: Callable[..., Any], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "_PATIENCE", 0.2, raising=False)
    monkeypatch.setattr(lag, "load_connections", hangs)
    found = lag.tick(dg.build_sensor_context(instance=instance), "p", FLOW.spec, HOURS)
    assert "systems of p: no answer within the time limit of 0.2 s" in str(found.skip_reason)


def test_replay_from_kafka_in_a_backfill_is_interrupted(
    hangs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, batch = list[str](), landed(1)

    def stop() -> None:
        stopped.append("all sessions")

    place = SimpleNamespace(landed=lambda: SimpleNamespace(batches=[batch]))
    pipeline = opened(intermediate=place, stop=stop)
    before = datetime.fromtimestamp(batch.batch.planned_at / 1000, UTC) - timedelta(hours=2)
    monkeypatch.setattr(landing, "from_time", lambda *_, **__: None)
    monkeypatch.setattr(landing, "reread_from_kafka", hangs)
    with pytest.raises(TimeLimitReached, match=r"landing of p: no answer within the time limit of 1 s"):
        landing._report(pipeline, Window(before, before + timedelta(hours=1)))
    assert stopped == ["all sessions"]


def test_each_batch_of_a_continuous_landing_has_the_time_for_itself(
    hangs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one hangs."""
    stopped, step, lands = list[str](), cast("Any", Step(hangs)), iter([lambda: [landed(1)], hangs])
    step.open = lambda: opened(stop=lambda: stopped.append("all sessions"))
    monkeypatch.setattr(protocol, "land", lambda *_: next(lands)())
    work = Landing(step)
    assert work._land(None) == landed(1)
    with pytest.raises(TimeLimitReached, match="landing of p: no answer within the time limit of 1 s"):
        work._land(None)
    assert (work.batches, stopped) == ([landed(1)], ["all sessions"])


class Step:
    """A continuous step of a pipeline whose systems answer this."""

    launch = SimpleNamespace(spec=FLOW.spec)
    tables, table = FLOW.spec.tables, FLOW.spec.tables[0]
    require_passed = staticmethod(lambda _: None)
    turn = staticmethod(nullcontext)
    key = dg.AssetKey(["landing", "p"])
    ring = staticmethod(lambda _: None)
    is_over = staticmethod(lambda: False)

    def __init__(self, looks: Callable[..., Any]) -> None:
        self._looks = looks
        self.context = SimpleNamespace(instance=dg.DagsterInstance.ephemeral(), log_event=None)

    def open(self) -> Any:
        destination = SimpleNamespace(name="d", table=FLOW.spec.tables[0])
        place = SimpleNamespace(committed=self._looks)
        return opened(intermediate=place, destination_of=lambda _: destination)

    def members(self) -> Any:
        return SimpleNamespace(name="p", look=self._looks, known=self._looks, each=None)

    def of(self, table: object) -> Step:
        del table
        return self


@pytest.mark.parametrize("begin", [Landing, Merging, LandingOfMembers, MergingOfMembers])
def test_a_continuous_step_fails_by_it(
    begin: Callable[[ContinuousStep], Work], hangs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the second tick at the latest: at the first one it may work before it looks."""

    def two_ticks(work: Work) -> None:
        work.tick()
        work.tick()

    monkeypatch.setattr(Landing, "_land", lambda *_: None)
    monkeypatch.setattr(Merging, "_merge", lambda *_: None)
    monkeypatch.setattr(protocol, "plan", hangs)
    step: Any = Step(hangs)
    with pytest.raises(TimeLimitReached, match="no answer within the time limit of 1 s"):
        two_ticks(begin(step))


MANY = PipelineSpec.model_validate(document("many", ("clickhouse",), freshness={}))


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> Members:
    """Members of which `_opening` says what they answer."""
    monkeypatch.setattr(Members, "published_check", lambda *_: lambda _: True)
    monkeypatch.setattr(Members, "_events", lambda *_: SimpleNamespace(published=nullcontext))
    monkeypatch.setattr(Members, "known", lambda _: expand("many", MANY, topics(40)).members)
    monkeypatch.setattr(Members, "ends", lambda *_: {})
    return Members("many", MANY, Connections({}, "no file"))


def _opening(monkeypatch: pytest.MonkeyPatch, answers: Callable[[str], object]) -> list[str]:
    """The topics whose tables are asked."""
    asked, table = list[str](), MANY.tables[0].model_copy(update={"time_limit_seconds": 0.2})

    def opened_member(_: object, member: Member, *__: object, **___: object) -> Any:
        def ask() -> object:
            asked.append(member.key)
            return answers(member.key)

        destination = SimpleNamespace(name=member.key, states=ask, committed=ask, table=table)
        return Opened(
            name=member.name,
            spec=member.spec,
            only=None,
            intermediate=SimpleNamespace(identifier="many", landed=lambda: SimpleNamespace(batches=[landed(1)])),
            table=lambda _: table,
            destination_of=lambda _: destination,
            interrupt=lambda _: None,
        )

    monkeypatch.setattr(Members, "open", opened_member)
    monkeypatch.setattr(protocol, "merge", lambda _, destination: destination.committed())
    return asked


def _merging(step: Any, every: Members) -> MergingOfMembers:
    step.launch, step.table = SimpleNamespace(spec=MANY), MANY.tables[0]
    step.members = lambda: every
    return MergingOfMembers(step)


def test_tables_of_a_silent_system_are_not_all_waited_for(
    every: Members, hangs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _opening(monkeypatch, hangs)
    due, seen, problems = behind(every, 0, every.known(), CircuitBreaker(0.2))
    assert (due, seen, len(problems)) == ([], {}, 40)
    assert 3 <= len(asked) < 3 + MANY.batch.at_once
    assert sum("just left 3 queries unanswered" in str(problem) for problem in problems.values()) == 40 - len(asked)


def test_nor_are_their_merges_in_a_continuous_run(
    every: Members, hangs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _opening(monkeypatch, hangs)
    _, problems = _merging(Step(hangs), every)._merge(every.known())
    assert 3 <= len(asked) < 3 + MANY.batch.at_once
    assert len(problems) == 40


def test_reports_of_a_continuous_run_do_not_ask_the_suspended(every: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not caught up, as far as is known."""
    asked, results = _opening(monkeypatch, lambda _: None), list[dg.AssetCheckResult]()
    (hangs, fails, *others), step = topics(40), cast("Any", Step(lambda: None))
    step.materialize = lambda _, found, *__, **___: results.extend(found)
    work = _merging(step, every)
    problems = {hangs: TimeLimitReached("no answer", seconds=60), fails: Unavailable("no answer")}
    work._topics.record(dict.fromkeys([hangs, fails, *others], 1), problems, 0.0)
    work.report()
    assert sorted(asked) == sorted(others)
    (caught_up,) = [one for one in results if one.check_name == checks.CAUGHT_UP]
    assert {label.split()[0] for label in caught_up.metadata[checks.WRONG_OF].value} >= {hangs, fails}  # type: ignore[union-attr]


def test_a_run_that_has_waited_for_its_turn_leaves_out_what_hung_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run before it had the turn until then."""
    merged, step = list[str](), cast("Any", Step(lambda: None))
    suspended, hung = SuspendedMembers(step.context.instance, step.key), TimeLimitReached("no answer", seconds=3600)

    @contextmanager
    def turn() -> Iterator[None]:
        suspended.record(["good"], {"hangs": hung}, ["hangs"])
        yield

    def merge(_: object, due: list[Member]) -> tuple[set[str], dict[str, BatchmergeError]]:
        merged.extend(member.key for member in due)
        return set(), {}

    step.turn = turn
    due = {topic: (SimpleNamespace(key=topic), "1") for topic in ("good", "hangs")}
    monkeypatch.setattr(MergingOfMembers, "_due", lambda _: due)
    monkeypatch.setattr(MergingOfMembers, "_merge", merge)
    work = MergingOfMembers(step)
    for _ in range(2):
        work.tick()
    assert merged == ["good"] * 2

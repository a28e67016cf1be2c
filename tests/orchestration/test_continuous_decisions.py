"""When a continuous run is started, replaced and over; its bell, its turns and what it reports. Without services."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from orchestration import pauses
from orchestration.components import KafkaPipeline
from orchestration.components.launch import Launch
from orchestration.components.suspended_members import SuspendedMembers
from orchestration.continuous import job, pace
from orchestration.continuous.decision import (
    RENEW,
    RUN,
    ContinuousCursor,
    Failed,
    Newest,
    reason_to_start,
    remember,
    steps_that_wait,
)
from orchestration.continuous.pace import Bell, ring, ticks
from orchestration.continuous.sensor import tick
from orchestration.continuous.step import ContinuousStep, report_after
from orchestration.continuous.topics import Topics
from orchestration.names import CONTINUOUS_TAG, FILE_TAG, continuous_op, file_hash, landing_key, pool, table_key
from orchestration.pools.turns import Over
from resources.errors import TimeLimitReached, Unavailable
from tests.kit.flow import Flow

FLOW = Flow("t", ["append", "upsert"], name="p", overrides={"interval": "1s"})
STATUS = dg.DagsterRunStatus
NOW = 1_000_000.0
LONG_TABLE = "warehouse__orders_of_customers_with_everything"
RUNS = Newest("one", "runs", NOW - 100, None, "file", {})


@dataclass(frozen=True)
class _Ticks:
    """Work of a step that reports by itself."""

    step: ContinuousStep
    does: Callable[[ContinuousStep], None]
    has_changes = False

    @classmethod
    def by(cls, does: Callable[[ContinuousStep], None]) -> Callable[[ContinuousStep], _Ticks]:
        return lambda step: cls(step, does)

    def tick(self) -> None:
        self.does(self.step)

    def report(self) -> None:
        raise AssertionError("it has no changes")


def _end(_: ContinuousStep) -> None:
    raise Over


def test_a_topic_is_due_when_it_has_moved_and_waits_longer_after_each_failure(instance: dg.DagsterInstance) -> None:
    topics, problem = Topics(SuspendedMembers(instance, landing_key("p"))), Unavailable("no answer")
    assert topics.is_due("a", 1, NOW)
    topics.record({"a": 1, "b": 1}, {"b": problem}, NOW)
    assert [topics.is_due("a", state, NOW) for state in (1, 2)] == [False, True]
    assert [topics.is_due("b", 1, NOW + seconds) for seconds in (4, 5)] == [False, True]
    topics.record({"b": 1}, {"b": problem}, NOW)
    assert [topics.is_due("b", 1, NOW + seconds) for seconds in (9, 10)] == [False, True]
    assert topics.problems == {"b": problem}
    topics.record({"b": 1}, {}, NOW)
    assert (topics.problems, topics.is_due("b", 1, NOW + 99), topics.is_due("b", 2, NOW)) == ({}, False, True)


def test_a_topic_that_hung_is_suspended_in_every_run_until_one_succeeds(instance: dg.DagsterInstance) -> None:
    suspended, hung = SuspendedMembers(instance, landing_key("p")), TimeLimitReached("no answer", seconds=3600)
    states = dict.fromkeys(("good", "fails", "hangs"), 1)
    topics, other_run = Topics(suspended), Topics(suspended)
    topics.record(states, {"hangs": hung, "fails": Unavailable("no answer")}, NOW)
    for run in (topics, other_run):
        assert run.not_suspended(states).keys() == {"good", "fails"}
    assert topics.is_due("hangs", 1, NOW + 5), "the suspension alone holds it"
    other_run.record({"hangs": 1}, {}, NOW)
    assert topics.not_suspended(states) == states


def test_topics_rest_only_where_others_were_done(instance: dg.DagsterInstance) -> None:
    """As many in the same try, or any between two."""
    topics, hung = Topics(SuspendedMembers(instance, landing_key("p"))), TimeLimitReached("no answer", seconds=3600)
    states = {"a": 1, "b": 1}
    topics.record(states, dict.fromkeys(states, hung), NOW)
    topics.record(states, dict.fromkeys(states, hung), NOW)
    topics.record({**states, "small": 1}, dict.fromkeys(states, hung), NOW)
    assert topics.not_suspended(states) == states
    topics.record({"small": 2}, {}, NOW)
    assert topics.not_suspended(states) == states, "their system may be back"
    topics.record({"a": 1}, {"a": hung}, NOW)
    assert topics.not_suspended(states) == {"b": 1}


@pytest.mark.parametrize(
    ("newest", "reason"),
    [
        (None, "there is no continuous run"),
        (replace(RUNS, state="waits", began=None), None),
        (RUNS, None),
        (replace(RUNS, file="other"), "file has changed"),
        (replace(RUNS, began=NOW - RENEW - 1), "is old"),
        (replace(RUNS, failures={"landing": "refused"}), "has failed"),
        (replace(RUNS, partly=True), "have ended"),
        (replace(RUNS, state="ended", ended=NOW), "has ended"),
        (replace(RUNS, state="died", ended=NOW), "has ended"),
        (replace(RUNS, state="died", began=NOW - 5, ended=NOW), None),
        (replace(RUNS, state="ended", began=NOW - 5, ended=NOW), None),
        (replace(RUNS, state="ended", began=NOW - 10, ended=NOW - 5), "has ended"),
        (replace(RUNS, state="cancelled", began=NOW - 5, ended=NOW), "has ended"),
    ],
)
def test_another_run_is_started_when_it_is_time(newest: Newest | None, reason: str | None) -> None:
    cursor = remember(ContinuousCursor(), newest, NOW)
    found = reason_to_start(cursor, newest, "file", NOW)
    assert reason in str(found) if reason else found is None


def test_what_it_leaves_behind_is_bounded() -> None:
    """A snapshot per batch: so many are kept as can be read in a moment, unless the file says otherwise."""
    upkeep = FLOW.spec.maintenance
    assert round(upkeep.landed.keep_days * 86_400) == round(upkeep.snapshots.keep_days * 86_400) == 2000
    assert upkeep.cron == "50 * * * *"
    own = Flow("t", ["append"], overrides={"interval": "5s", "maintenance": {"landed": {"keep_days": 3}}}).spec
    assert own.maintenance.landed.keep_days == 3
    assert round(own.maintenance.snapshots.keep_days * 86_400) == 10_000
    assert Flow("t", ["append"]).spec.maintenance.cron == "20 3 * * *"


def test_what_fails_again_and_again_waits_longer_and_holds_up_nothing_else() -> None:
    cursor, waits = ContinuousCursor(), []
    for number in range(9):
        failed = replace(RUNS, run=str(number), failures={"table": "no"})
        cursor = remember(remember(cursor, failed, NOW), failed, NOW + 1)
        waits.append(cursor.failed["table"].not_before - NOW)
        assert list(steps_that_wait(cursor, ["landing", "table"], NOW)) == ["table"]
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert Failed(run="", at=NOW, times=10_000, text="no").not_before == NOW + 300
    later = replace(RUNS, run="later", failures={"table": "no"})
    assert remember(cursor, later, NOW + 7200).failed["table"].times == 1
    # A run that dies at once is started again after the same pauses.
    dead = replace(RUNS, run="dead", state="died", began=NOW - 5, ended=NOW)
    died = remember(ContinuousCursor(), dead, NOW)
    assert RUN in died.failed
    assert reason_to_start(died, dead, "file", NOW + 6)


def test_the_sensor_starts_one_and_holds_while_paused(instance: dg.DagsterInstance) -> None:
    asked = tick(instance, "p", FLOW.spec, None)
    assert len(asked.run_requests or []) == 1
    tags = {CONTINUOUS_TAG: "p", FILE_TAG: file_hash(FLOW.spec)}
    made = create_run_for_test(instance, job_name="p_continuous", status=STATUS.STARTING, tags=tags)
    assert "is about to begin" in str(tick(instance, "p", FLOW.spec, asked.cursor).skip_reason)
    pauses.pause(instance, "p", FLOW.spec, None, "anna")
    assert "paused by anna" in str(tick(instance, "p", FLOW.spec, asked.cursor).skip_reason)
    pauses.resume(instance, "p", FLOW.spec, None, "anna")
    instance.report_run_canceled(made)
    assert tick(instance, "p", FLOW.spec, asked.cursor).run_requests


@pytest.mark.parametrize(
    ("name", "another"), [("a", "b"), (f"iceberg__{LONG_TABLE}__continuous", f"clickhouse__{LONG_TABLE}__continuous")]
)
def test_a_bell_wakes_the_step_that_it_is_for(name: str, another: str) -> None:
    with closing(Bell("run", name)) as bell, closing(Bell("run", another)) as other:
        ring("run", [name, "nobody"])
        assert bell.wait(60)
        assert not other.wait(0)
        assert not bell.wait(0)
        waiting, seen = ticks(600, bell, lambda: len(seen) == 3), list[None]()
        ended = threading.Event()

        def keep_ringing() -> None:
            while not ended.wait(0.01):
                ring("run", [name])

        ringing = threading.Thread(target=keep_ringing)
        ringing.start()
        for one in waiting:
            seen.append(one)
        ended.set()
        ringing.join()


def test_after_rings_the_next_tick_comes_within_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that is played: the bell rings every 2 s for 10 minutes, and then never again."""
    now, seen = [0.0], list[float]()

    class Rung(Bell):
        def __init__(self) -> None:
            pass

        def wait(self, seconds: float) -> bool:
            ring_at = 2.0 * (now[0] // 2 + 1)
            is_rung = ring_at <= min(600.0, now[0] + seconds)
            now[0] = ring_at if is_rung else now[0] + seconds
            return is_rung

    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for _ in ticks(60.0, Rung(), lambda: now[0] > 900.0):
        seen.append(now[0])
        now[0] += 0.5
    assert [at for at in seen if at > 598.0] == [600.0, 660.0, 720.0, 780.0, 840.0, 900.0]


def test_a_bell_is_heard_in_a_process_with_many_open_files() -> None:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard != unlimited and hard < 2000:
        pytest.skip(f"this machine lets a process open {hard} files at the most")
    with ExitStack() as opened:
        if soft != unlimited:
            opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(2000, soft), hard))
        for _ in range(1100):
            opened.enter_context(open(os.devnull))
        bell = Bell("run", "many files")
        opened.callback(bell.close)
        ring("run", ["many files"])
        assert bell.wait(60)


def test_reports_come_soon_and_then_no_more_often_than_those_of_runs_every_five_minutes() -> None:
    pauses = [report_after(n) for n in range(100)]
    assert pauses[:6] == [10, 20, 40, 80, 160, 300]
    assert set(pauses[5:]) == {300}


def test_with_an_interval_nothing_else_starts_runs() -> None:
    found = KafkaPipeline("p", FLOW.spec).definitions()
    dg.Definitions.validate_loadable(found)
    assert [s.name for s in found.schedules or []] == ["p_maintenance_schedule"]
    assert "p_continuous" in [s.name for s in found.sensors or []]
    steps = {node.name for node in job.continuous_job(Launch("p", FLOW.spec)).all_node_defs}
    assert steps == {continuous_op("p", key) for key in (landing_key("p"), *map(table_key, FLOW.spec.tables))}


def test_tables_that_commit_together_have_one_step() -> None:
    spec = FLOW.spec.model_copy(update={"commit": "together"})
    made = job.continuous_job(Launch("p", spec))
    first = continuous_op("p", table_key(spec.tables[0]))
    assert {node.name for node in made.all_node_defs} == {continuous_op("p", landing_key("p")), first}


def test_it_holds_the_pool_only_while_it_works(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Materializes the asset, and ends when it is replaced or paused."""
    landing, held = landing_key("p"), list[list[int]]()
    storage = instance.event_log_storage

    def claimed() -> int:
        return len(storage.get_concurrency_info(pool(landing)).claimed_slots)

    def tick(step: ContinuousStep) -> None:
        before = claimed()
        with step.turn():
            held.append([before, claimed()])
        good = dg.AssetCheckResult(check_name="counts_add_up", asset_key=landing, passed=True)
        step.materialize({"lag": dg.MetadataValue.int(0)}, [good], "commit", batches=2, rows=10)
        if len(held) == 2:
            pauses.pause(instance, "p", FLOW.spec, None, "anna")

    monkeypatch.setattr(job, "Landing", _Ticks.by(tick))
    monkeypatch.setattr(job, "Merging", _Ticks.by(_end))
    storage.set_concurrency_slots(pool(landing), 1)
    made = job.continuous_job(Launch("p", FLOW.spec)).execute_in_process(
        instance=instance, tags={"dagster/sensor_name": "p_continuous"}
    )
    assert made.success
    assert held == [[0, 1], [0, 1]]
    materialized = instance.fetch_materializations(landing, limit=5).records
    assert len(materialized) == 2
    assert {"batches per minute", "rows per minute"} <= set(materialized[0].asset_materialization.metadata)  # type: ignore[union-attr]
    checked = instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(landing, "counts_add_up")]
    )
    assert len(checked) == 1


def test_a_broken_batch_fails_the_check_of_the_landing_where_a_table_finds_it(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, table = landing_key("p"), table_key(FLOW.spec.tables[0])

    def tick(step: ContinuousStep) -> None:
        for key in (table, landing):
            step.require([dg.AssetCheckResult(check_name="batch_is_next", asset_key=key, passed=key == table)])

    monkeypatch.setattr("orchestration.continuous.step.ticks", lambda *_: iter([None]))
    monkeypatch.setattr(job, "Landing", _Ticks.by(lambda _: None))
    monkeypatch.setattr(job, "Merging", _Ticks.by(tick))
    made = job.continuous_job(Launch("p", FLOW.spec)).execute_in_process(instance=instance, raise_on_error=False)
    assert not made.success
    checks = [dg.AssetCheckKey(key, "batch_is_next") for key in (landing, table)]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
    assert [one.status.value for one in map(found.__getitem__, checks)] == ["FAILED", "SUCCEEDED"]

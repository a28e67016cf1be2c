"""The landing of a continuous run: what a tick does. Without services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock

import dagster as dg
import pytest

from jobs.batch import LandedBatch
from jobs.planning.plan import TopicState
from orchestration.components.launch import Launch
from orchestration.continuous import job
from orchestration.continuous.landing import Landing
from orchestration.continuous.step import ContinuousStep
from orchestration.names import landing_key, pool
from orchestration.pools.turns import Over
from tests.kit.batches import P0, P1, TOPIC_IDS, landed
from tests.kit.flow import Flow

FLOW = Flow("t", ["append"], name="p", overrides={"interval": "1s"})


def test_a_tick_asks_kafka_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The landing plans its first batch from what showed that there is one."""
    step, seen = MagicMock(), TopicState({}, {}, {})
    step.open.return_value.land_in_time = lambda work, *_: work()
    step.is_over.return_value = step.is_due.return_value = False
    planned = iter([MagicMock(batch=None), MagicMock(batch=None), MagicMock(topics=seen)])
    taken = list[object]()

    def land(*asked: object) -> list[LandedBatch]:
        taken.append(asked[-1])
        return []

    monkeypatch.setattr("jobs.protocol.plan", lambda _: next(planned))
    monkeypatch.setattr("jobs.protocol.land", land)
    monkeypatch.setattr("orchestration.continuous.landing.continuous_tables", lambda _: [])
    work = Landing(step)
    for _ in range(3):
        work.tick()
    assert taken == [None, seen], "at the first tick it looks for what a dead run left, at the second nothing is new"


def test_what_was_landed_is_reported_where_the_step_is_over_before_its_next_turn(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, reported = TopicState({}, {P0: 30, P1: 30}, TOPIC_IDS), list[int]()
    turns = iter([nullcontext(), nullcontext()])

    def turn(_: ContinuousStep) -> AbstractContextManager[None]:
        if found := next(turns, None):
            return found
        raise Over

    lands = iter([[], [landed(1)]])
    monkeypatch.setattr("jobs.protocol.plan", lambda _: MagicMock(topics=seen))
    monkeypatch.setattr("jobs.protocol.land", lambda *_: next(lands))
    monkeypatch.setattr("orchestration.continuous.landing.continuous_tables", lambda _: [])
    monkeypatch.setattr(Landing, "report", lambda done: reported.append(len(done.batches)))
    monkeypatch.setattr("orchestration.components.checks.landing_results", lambda *_: [])
    monkeypatch.setattr(ContinuousStep, "turn", turn)
    monkeypatch.setattr(ContinuousStep, "is_due", lambda *_: False)
    _land_at_one_tick(instance, monkeypatch)
    assert reported == [1]


def test_others_get_their_turn_and_reports_are_made_between_two_batches_of_a_backlog(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka has three batches at the first tick, and a fourth one comes while they are landed."""
    storage, name = instance.event_log_storage, pool(landing_key("p"))
    storage.set_concurrency_slots(name, 1)
    seen, reported, given = TopicState({}, {P0: 30, P1: 30}, TOPIC_IDS), list[int](), list[bool]()
    batches = iter([None, *map(landed, range(1, 5))])

    def claims() -> bool:
        """Whether a run that waits for the landing's table gets it now."""
        claimed = bool(storage.claim_concurrency_slot(name, "another run", "its step").is_claimed)
        if claimed:
            storage.free_concurrency_slots_for_run("another run")
        return claimed

    def land(*asked: object) -> Iterator[LandedBatch]:
        assert asked[1] == 1
        given.append(claims())
        if batch := next(batches):
            yield batch

    def report(done: Landing) -> None:
        reported.append(len(done.batches))
        given.append(claims())
        done.before, done.batches = done.batches[-1:], []

    monkeypatch.setattr("jobs.protocol.plan", lambda _: SimpleNamespace(batch=landed(1).batch, topics=seen))
    monkeypatch.setattr("jobs.protocol.land", land)
    monkeypatch.setattr(Landing, "report", report)
    monkeypatch.setattr(ContinuousStep, "is_due", lambda _, has_changes: has_changes)
    _land_at_one_tick(instance, monkeypatch)
    assert reported == [1, 1, 1]
    assert given == [False, False, True, False, True, False, True]


def _land_at_one_tick(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The landing's step of a run whose other steps do nothing."""
    monkeypatch.setattr("orchestration.continuous.step.ticks", lambda *_: iter([None]))
    monkeypatch.setattr(ContinuousStep, "open", lambda _: SimpleNamespace(land_in_time=lambda work, *_: work()))
    monkeypatch.setattr(job, "Merging", lambda _: MagicMock(has_changes=False))
    assert job.continuous_job(Launch("p", FLOW.spec)).execute_in_process(instance=instance).success

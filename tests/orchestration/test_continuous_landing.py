"""The landing of a continuous run: what a tick does. Without services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock

import dagster as dg
import pytest

from jobs.batch import LandedBatch
from jobs.planning.plan import TopicState
from orchestration.components.launch import Launch
from orchestration.continuous import job, landing
from orchestration.continuous.landing import land_continuously
from orchestration.continuous.step import ContinuousStep
from orchestration.names import landing_key, pool
from orchestration.pools.turns import Over
from tests.kit.batches import P0, P1, TOPIC_IDS, landed
from tests.kit.flow import Flow

FLOW = Flow("t", ["append"], name="p", overrides={"interval": "1s"})


def test_a_tick_asks_kafka_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The landing plans its first batch from what showed that there is one."""
    step, seen = MagicMock(), TopicState({}, {}, {})
    step.at_work.return_value.__enter__.return_value = range(3)
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
    land_continuously(step)
    assert taken == [None, seen], "at the first tick it looks for what a dead run left, at the second nothing is new"


def test_what_was_landed_is_reported_where_the_step_is_over_before_its_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, seen, reported = MagicMock(), TopicState({}, {P0: 30, P1: 30}, TOPIC_IDS), list[int]()
    step.at_work.return_value.__enter__.return_value = range(1)
    step.open.return_value.land_in_time = lambda work, *_: work()
    step.is_over.return_value = step.is_due.return_value = False
    step.turn.side_effect = [nullcontext(), nullcontext(), Over()]
    lands = iter([[], [landed(1)]])
    monkeypatch.setattr("jobs.protocol.plan", lambda _: MagicMock(topics=seen))
    monkeypatch.setattr("jobs.protocol.land", lambda *_: next(lands))
    monkeypatch.setattr("orchestration.continuous.landing.continuous_tables", lambda _: [])
    monkeypatch.setattr(landing, "_materialize", lambda _, __, done: reported.append(len(done.batches)))
    monkeypatch.setattr("orchestration.components.checks.landing_results", lambda *_: [])
    land_continuously(step)
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

    def report(_: object, __: object, done: landing._LandingPeriod) -> None:
        reported.append(len(done.batches))
        given.append(claims())
        done.restart_period()

    def land_at_one_tick(step: ContinuousStep) -> None:
        step.is_due = lambda has_changes: has_changes  # type: ignore[method-assign]
        step.open = lambda: SimpleNamespace(land_in_time=lambda work, *_: work())  # type: ignore[method-assign,assignment,return-value]
        land_continuously(step)

    monkeypatch.setattr("jobs.protocol.plan", lambda _: SimpleNamespace(batch=landed(1).batch, topics=seen))
    monkeypatch.setattr("jobs.protocol.land", land)
    monkeypatch.setattr(landing, "_materialize", report)
    monkeypatch.setattr("orchestration.continuous.step.ticks", lambda *_: iter([None]))
    monkeypatch.setattr(job, "land_continuously", land_at_one_tick)
    monkeypatch.setattr(job, "merge_continuously", lambda _: None)
    assert job.continuous_job(Launch("p", FLOW.spec)).execute_in_process(instance=instance).success
    assert reported == [1, 1, 1]
    assert given == [False, False, True, False, True, False, True]

"""Work for many members at a time."""

from __future__ import annotations

import math
import threading
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs.batch import CommittedState
from jobs.members.members import Members
from jobs.members.side_by_side import Outcome, side_by_side
from jobs.members.topics import Seen
from jobs.offsets import TopicPartition
from jobs.planning.plan import TopicState
from jobs.spark.sessions import OneSession
from jobs.spec.members import Member
from jobs.time_limit import ending_with, with_timeout
from orchestration.sensors.lag import _look_at_members
from resources.connections import Connections
from resources.errors import Interrupted, TableReplaced
from tests.kit import specs
from tests.kit.batches import committed
from tests.kit.waiting import PATIENCE


class Session:
    """What a session does when a run is cancelled."""

    interrupted = 0

    def interruptAll(self) -> None:
        self.interrupted += 1


def test_nothing_begins_in_the_session_of_a_run_that_was_cancelled() -> None:
    spark = Session()
    session = OneSession(lambda: cast(SparkSession, spark))
    members = [Member("t", "p__t", specs.spec())]

    def cancelled(member: Member) -> Outcome[Any]:
        assert member in members
        assert session.get("landing") is cast(SparkSession, spark)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(side_by_side(members, 1, cancelled, [session]))

    assert spark.interrupted == 1
    with pytest.raises(Interrupted):
        session.get("landing")


def test_where_the_run_is_to_end_no_further_member_begins() -> None:
    end, answer, begun, spark = threading.Event(), threading.Event(), list[str](), Session()
    session = OneSession(lambda: cast(SparkSession, spark))
    members = [Member(topic, f"p__{topic}", specs.spec()) for topic in ("a", "b", "c")]

    def hangs(member: Member) -> Outcome[Any]:
        assert session.get("landing") is cast(SparkSession, spark)
        begun.append(member.key)
        end.set()
        with_timeout(math.inf, member.key, lambda: answer.wait(PATIENCE))
        return Outcome(member.key, member, done=True)

    try:
        with ending_with(end), pytest.raises(KeyboardInterrupt):
            list(side_by_side(members, 1, hangs, [session]))
        for thread in threading.enumerate():
            if thread.name.startswith("batchmerge-member"):
                thread.join()
    finally:
        answer.set()
    assert begun == ["a"]
    assert spark.interrupted == 1


def test_members_work_in_the_context_of_their_step() -> None:
    step = ContextVar("step", default="none")
    step.set("landing")
    found = side_by_side([Member("t", "p__t", specs.spec())], 1, lambda m: Outcome(m.key, m, done=step.get()), [])
    assert [outcome.done for outcome in found] == ["landing"]


def test_the_lag_sensor_asks_for_many_landed_states_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow catalog, four questions at a time: hundreds of topics would take longer than a tick may."""
    members, others = [Member(f"t{n}", f"p__t{n}", specs.spec()) for n in range(40)], threading.Barrier(20)

    def ask() -> CommittedState:
        others.wait(PATIENCE)
        return committed(1)

    pipeline = SimpleNamespace(intermediate=SimpleNamespace(committed=ask))
    monkeypatch.setattr(Members, "known", lambda _: members)
    monkeypatch.setattr(Members, "open", lambda *_, **__: pipeline)
    landed, failed = Members("p", specs.spec(), Connections({}, "")).landed()
    assert (len(landed), failed) == (40, {})


def test_a_landed_table_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [Member(topic, f"p__{topic}", specs.spec()) for topic in ("good", "bad")]

    def open_member(_: Members, member: Member, *__: Any) -> Any:
        def ask() -> CommittedState:
            if member.key == "bad":
                raise TableReplaced("rolled back")
            return committed(3)

        return SimpleNamespace(intermediate=SimpleNamespace(committed=ask))

    ends = {m.key: TopicState({}, {TopicPartition(m.key, 0): 1000}, {}) for m in members}
    monkeypatch.setattr(Members, "known", lambda _: members)
    monkeypatch.setattr(Members, "open", open_member)
    monkeypatch.setattr(Members, "look", lambda _: Seen(members, ends))
    monkeypatch.setattr(Members, "group_offsets", lambda *_: {})
    every = Members("p", specs.spec(), Connections({}, ""))
    landed, failed = every.landed()
    assert ([state.batch_number for state in landed], list(failed)) == ([3], ["bad"])
    assert {tp.topic for tp in _look_at_members(every).ends} == {"good"}, "what waits for the other is not known"

    members.pop(0)
    with pytest.raises(TableReplaced):
        every.landed()

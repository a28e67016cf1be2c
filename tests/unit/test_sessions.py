"""What interrupting Spark sessions stops, and for whom."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs.members.shared_jobs import Slot
from jobs.spark.sessions import OneSession, OwnSessions, SessionOfMany, Sessions


class Session:
    """Counts how often its work was stopped."""

    interrupted = 0

    def interruptAll(self) -> None:
        self.interrupted += 1


def slot(session: OneSession) -> Slot:
    free = SimpleQueue[OneSession]()
    free.put(session)
    return Slot(free)


def opens_nothing() -> Any:
    raise AssertionError("a session was opened")


@pytest.mark.parametrize(
    "sessions",
    [
        OwnSessions(),
        OneSession(opens_nothing),
        SessionOfMany(opens_nothing),
        slot(OneSession(opens_nothing)),
        slot(SessionOfMany(opens_nothing)),
    ],
)
def test_interrupting_opens_no_session(sessions: Sessions) -> None:
    sessions.interrupt("check")
    sessions.interrupt_all()


def test_a_pipeline_with_sessions_of_its_own_stops_one_role_or_all() -> None:
    opened: dict[str, Any] = {role: Session() for role in ("landing", "table")}
    sessions = OwnSessions()
    for role, session in opened.items():
        assert sessions.get(role, lambda session=session: session) is session  # type: ignore[misc]
        assert sessions.get(role, opens_nothing) is session
    sessions.interrupt("landing")
    assert [session.interrupted for session in opened.values()] == [1, 0]
    sessions.interrupt_all()
    assert [session.interrupted for session in opened.values()] == [2, 1]


@pytest.mark.parametrize(
    "stop", [lambda sessions: sessions.interrupt("any"), lambda sessions: sessions.interrupt_all()]
)
@pytest.mark.parametrize(("kind", "stopped"), [(OneSession, 1), (SessionOfMany, 0)])
@pytest.mark.parametrize("held", [lambda session: session, slot])
def test_a_member_stops_a_session_only_while_it_alone_works_there(
    kind: type[OneSession], stopped: int, stop: Callable[[Sessions], None], held: Callable[[OneSession], Sessions]
) -> None:
    spark = Session()
    sessions = held(kind(lambda: cast(SparkSession, spark)))
    assert sessions.get("landing", opens_nothing) is cast(SparkSession, spark)
    stop(sessions)
    assert spark.interrupted == stopped


def test_a_member_that_waits_for_a_shared_job_does_not_stop_it() -> None:
    spark = Session()
    lent = slot(OneSession(lambda: cast(SparkSession, spark)))
    assert lent.get("table") is cast(SparkSession, spark)
    with lent.left():
        lent.interrupt("table")
    assert spark.interrupted == 0
    lent.interrupt("table")
    assert spark.interrupted == 1


def test_closing_stops_also_what_many_members_do() -> None:
    spark = Session()
    session = SessionOfMany(lambda: cast(SparkSession, spark))
    assert session.get("landing") is cast(SparkSession, spark)
    session.close()
    assert spark.interrupted == 1

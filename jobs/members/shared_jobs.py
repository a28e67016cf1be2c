"""One Spark job for the work of many topics: they wait for each other, and one job serves all that wait.

A Spark job costs more than the records of most of the members of a pipeline (`jobs.members`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Condition, Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from jobs.spark.sessions import OneSession, Sessions
from resources.errors import BatchmergeError, Interrupted, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("batchmerge")
W = TypeVar("W")
A = TypeVar("A")

# Seconds to wait for the others: one that comes later gets a job of its own.
_PATIENCE = 30.0


class Slot(Sessions):
    """Lends a participant a session for every role. While it waits for a shared job it has none; afterwards it takes
    any that is free.

    Interrupting stops what the participant itself does. The shared job is not stopped: others wait for it too.
    """

    def __init__(self, free: SimpleQueue[OneSession]) -> None:
        self._free, self._moving, self._over = free, Lock(), False
        self._session: OneSession | None = None
        self._take()

    def get(self, role: str, open_: Callable[[], SparkSession] | None = None) -> SparkSession:
        session = self._session
        if session is None:
            raise Interrupted("the work was given up", where=role, remedy="run it again")
        return session.get(role, open_)

    def interrupt(self, role: str) -> None:
        if session := self._session:
            session.interrupt(role)

    def interrupt_all(self) -> None:
        if session := self._session:
            session.interrupt_all()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Gives the session to others while the block runs."""
        self._leave()
        try:
            yield
        finally:
            self._take()

    def close(self) -> None:
        with self._moving:
            self._over = True
        self._leave()

    def _take(self) -> None:
        session = self._free.get()
        if session.over:
            self._free.put(session)
            raise Interrupted("the run was cancelled", remedy="run it again")
        with self._moving:
            # Work that was given up (a time limit) goes on in a thread that nobody waits for, and keeps no session.
            if self._over:
                self._free.put(session)
            else:
                self._session = session

    def _leave(self) -> None:
        with self._moving:
            session, self._session = self._session, None
        if session is not None:
            self._free.put(session)


class SharedJobs(Generic[W, A]):
    """Runs one job for all participants that wait, as soon as no other participant is at work.

    Args of the constructor:
        expected: how many participants there will be.
        sessions: as many participants work at a time, each in one of these; those that wait do not count.
        do: runs one job for several requests, and returns the answers.
    """

    def __init__(self, expected: int, sessions: Sequence[OneSession], do: Callable[[Sequence[W]], list[A]]) -> None:
        self._do, self._at_work = do, expected
        self._changed, self._waiting = Condition(), list[tuple[W, Future[A]]]()
        self._free = SimpleQueue[OneSession]()
        for session in sessions:
            self._free.put(session)

    @contextmanager
    def join(self) -> Iterator[Participant[W, A]]:
        """One participant, for all of its work."""
        participant = Participant(self, Slot(self._free))
        try:
            yield participant
        finally:
            participant.slot.close()
            participant.runs_alone()

    def leave(self) -> None:
        """Lowers the number of participants that others wait for."""
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()

    def answer(self, wanted: W) -> A:
        """The answer, once every other participant waits too or has left."""
        answer: Future[A] = Future()
        mine = (wanted, answer)
        with self._changed:
            self._waiting.append(mine)
            self._changed.notify_all()
            # Whoever finds that nobody else is at work any more does it for all.
            self._changed.wait_for(
                lambda: mine not in self._waiting or len(self._waiting) >= self._at_work, timeout=_PATIENCE
            )
            batch = self._waiting if mine in self._waiting else []
            self._waiting = [] if batch else self._waiting
        if batch:
            self._do_for(batch)
        return answer.result()

    def _do_for(self, waiting: Sequence[tuple[W, Future[A]]]) -> None:
        """Answers all requests. A job that fails is run again for each half of them, until only the requests that cause
        the failure fail."""
        try:
            found = self._do([wanted for wanted, _ in waiting])
        except BaseException as problem:
            if len(waiting) == 1 or not _may_be_of_one(problem):
                for _, answer in waiting:
                    answer.set_exception(problem)
                return
            _LOG.warning("the shared job of %d topics fails, and runs again for each half of them", len(waiting))
            self._do_for(waiting[: len(waiting) // 2])
            self._do_for(waiting[len(waiting) // 2 :])
            return
        for (_, answer), done in zip(waiting, found, strict=True):
            answer.set_result(done)


class Participant(Generic[W, A]):
    """One topic's way to the shared jobs."""

    def __init__(self, shared: SharedJobs[W, A], slot: Slot) -> None:
        self._shared, self._alone = shared, False
        self.slot = slot

    def __call__(self, wanted: W) -> A:
        """Runs the request in a job with those of the others."""
        with self.slot.left():
            return self._shared.answer(wanted)

    def runs_alone(self) -> None:
        """Has the others not wait for it any more."""
        if not self._alone:
            self._alone = True
            self._shared.leave()


def _may_be_of_one(problem: BaseException) -> bool:
    """Whether a single request may be the cause."""
    from resources.spark_errors import spark_errors

    try:
        with spark_errors(""):
            raise problem
    except (Interrupted, Unavailable):
        return False
    except BaseException as ours:
        return isinstance(ours, BatchmergeError)

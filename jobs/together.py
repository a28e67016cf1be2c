"""What those who work side by side have Spark do: they wait for each other there, and one job does it for all who wait.

A Spark job costs more than the records of most of the members of a pipeline (`jobs.members`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Condition, Lock
from typing import Generic, TypeVar

from pyspark.sql import SparkSession

from jobs.side_by_side import OneSession
from resources.errors import BatchmergeError, Interrupted, Unavailable
from resources.spark import spark_errors

_LOG = logging.getLogger("batchmerge")
W = TypeVar("W")
A = TypeVar("A")

# Seconds: who comes later than this after the others gets a job of its own.
_PATIENCE = 30.0


class Seat(dict[str, SparkSession]):
    """The Spark sessions of one of them, whatever the role is: those of the place that it has now. Who waits has none,
    and gets any that is free after that.
    """

    def __init__(self, free: SimpleQueue[OneSession]) -> None:
        super().__init__()
        self._free, self._moving, self._over = free, Lock(), False
        self._place: OneSession | None = None
        self._take()

    def __contains__(self, role: object) -> bool:
        return self._place is not None

    def __getitem__(self, role: str) -> SparkSession:
        if self._place is None:
            raise Interrupted("the work was given up", where=role, remedy="run it again")
        return self._place[role]

    @contextmanager
    def left(self) -> Iterator[None]:
        """Others may have the place meanwhile."""
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
        place = self._free.get()
        if place.over:
            self._free.put(place)
            raise Interrupted("the run was cancelled", remedy="run it again")
        with self._moving:
            # Work that was given up (a time limit) goes on in a thread that nobody waits for, and keeps no place.
            if self._over:
                self._free.put(place)
            else:
                self._place = place

    def _leave(self) -> None:
        with self._moving:
            place, self._place = self._place, None
        if place is not None:
            self._free.put(place)


class Together(Generic[W, A]):
    """Does for those who work side by side what each of them wants: in one go for all who wait, when nobody else is at
    work.

    Args of the constructor:
        expected: how many will take part.
        places: so many of them work at a time, each in a session of its own; who waits does not count.
        do: answers several of them.
    """

    def __init__(self, expected: int, places: Sequence[OneSession], do: Callable[[Sequence[W]], list[A]]) -> None:
        self._do, self._at_work = do, expected
        self._changed, self._waiting = Condition(), list[tuple[W, Future[A]]]()
        self._free = SimpleQueue[OneSession]()
        for place in places:
            self._free.put(place)

    @contextmanager
    def taking_part(self) -> Iterator[Part[W, A]]:
        """Everything that one of those who were expected does."""
        part = Part(self, Seat(self._free))
        try:
            yield part
        finally:
            part.seat.close()
            part.goes_alone()

    def leave(self) -> None:
        """One less is waited for."""
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()

    def answer(self, wanted: W) -> A:
        """When the others are there, or at work no more."""
        answer: Future[A] = Future()
        mine = (wanted, answer)
        with self._changed:
            self._waiting.append(mine)
            self._changed.notify_all()
            # Whoever finds that nobody else is at work any more does it for all.
            self._changed.wait_for(
                lambda: mine not in self._waiting or len(self._waiting) >= self._at_work, timeout=_PATIENCE
            )
            together = self._waiting if mine in self._waiting else []
            self._waiting = [] if together else self._waiting
        if together:
            self._do_for(together)
        return answer.result()

    def _do_for(self, waiting: Sequence[tuple[W, Future[A]]]) -> None:
        """Answers all of them. What fails for several is done for each half of them, until it fails for those alone who
        have caused it."""
        try:
            found = self._do([wanted for wanted, _ in waiting])
        except BaseException as problem:
            if len(waiting) == 1 or not _may_be_of_one(problem):
                for _, answer in waiting:
                    answer.set_exception(problem)
                return
            _LOG.warning("what is done for %d together fails, and is done for each half of them", len(waiting))
            self._do_for(waiting[: len(waiting) // 2])
            self._do_for(waiting[len(waiting) // 2 :])
            return
        for (_, answer), done in zip(waiting, found, strict=True):
            answer.set_result(done)


class Part(Generic[W, A]):
    """The part of one of them."""

    def __init__(self, together: Together[W, A], seat: Seat) -> None:
        self._together, self._alone = together, False
        self.seat = seat

    def __call__(self, wanted: W) -> A:
        """Has it done with what the others want."""
        with self.seat.left():
            return self._together.answer(wanted)

    def goes_alone(self) -> None:
        """Nobody is to wait for it any more."""
        if not self._alone:
            self._alone = True
            self._together.leave()


def _may_be_of_one(problem: BaseException) -> bool:
    """Whether what one of them wants may be the cause."""
    try:
        with spark_errors(""):
            raise problem
    except (Interrupted, Unavailable):
        return False
    except BaseException as ours:
        return isinstance(ours, BatchmergeError)

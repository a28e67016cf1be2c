"""The same work for many members of a pipeline at a time: its outcomes, its Spark sessions, its threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from jobs.spec.members import Member
from jobs.time_limit import LOOK, ending_with, raise_if_to_end
from resources.errors import BatchmergeError, Interrupted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("batchmerge")
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What became of one topic's part of the work; `done` is None where it failed."""

    topic: str
    member: Member | None = None
    done: T | None = None
    problem: BatchmergeError | None = None


class OneSession(dict[str, "SparkSession"]):
    """One Spark session for every role of a member; opened at first use, and shared by whoever holds it.

    Attributes:
        over: closed for good; asking for it raises Interrupted.
    """

    def __init__(self, open_: Callable[[], SparkSession]) -> None:
        super().__init__()
        self._open, self._opening, self.over = open_, Lock(), False

    def __contains__(self, role: object) -> bool:
        return True

    def __getitem__(self, role: str) -> SparkSession:
        with self._opening:
            if self.over:
                raise Interrupted("the run was cancelled", where=role, remedy="run it again")
            if "" not in self.keys():
                self[""] = self._open()
            return super().__getitem__("")

    def interrupt(self) -> None:
        """Stops what runs in it, and gives it to nobody any more: a landing would go on with its next batch, and the
        process could not end before."""
        from resources.spark import spark_errors

        self.over = True
        for session in self.values():
            with suppress(BatchmergeError), spark_errors("cancelled"):
                session.interruptAll()


def outcome_of(member: Member, work: Callable[[], T | None]) -> Outcome[T]:
    """What became of a member's work. What is no error of ours is raised."""
    try:
        return Outcome(member.topic, member, work())
    except BatchmergeError as problem:
        _LOG.warning("%s: %s", member.topic, problem)
        return Outcome(member.topic, member, problem=problem)


def side_by_side(
    members: Sequence[Member], at_once: int, one: Callable[[Member], Outcome[T]], sessions: Sequence[OneSession]
) -> Iterator[Outcome[T]]:
    """Yields outcomes as they come, without those of members that had nothing to do. After a failure, which may be
    Spark's, sessions are opened again."""
    pool, ended = ThreadPoolExecutor(at_once, "batchmerge-member"), SimpleQueue[Future[Outcome[T]]]()
    failed, end = False, Event()

    def work(member: Member) -> Outcome[T]:
        with ending_with(end):
            return one(member)

    try:
        for member in members:
            pool.submit(copy_context().run, work, member).add_done_callback(ended.put)
        for _ in members:
            outcome = _next(ended).result()
            failed |= outcome.problem is not None
            if outcome.done is not None or outcome.problem:
                yield outcome
    except BaseException:  # the run is cancelled, or there is a bug: nothing begins any more, and Spark stops
        end.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for session in sessions:
            session.interrupt()
        raise
    pool.shutdown()
    if failed:
        for session in sessions:
            session.clear()


def _next(queue: SimpleQueue[T]) -> T:
    """What comes next; only the main thread of a process gets interrupts, so others look whether they are to end."""
    while True:
        raise_if_to_end()
        with suppress(Empty):
            return queue.get(timeout=LOOK)

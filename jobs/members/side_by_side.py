"""The same work for many members of a pipeline at a time: its outcomes and its threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Generic, TypeVar

from jobs.spark.sessions import OneSession
from jobs.spec.members import Member
from jobs.time_limit import LOOK, ending_with, raise_if_to_end
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What became of one member's part of the work.

    Attributes:
        key: the member's (`Member.key`), or of a topic that is no member.
        done: None where it failed.
    """

    key: str
    member: Member | None = None
    done: T | None = None
    problem: BatchmergeError | None = None


def outcome_of(member: Member, work: Callable[[], T | None]) -> Outcome[T]:
    """What became of a member's work; a problem is only kept if it is an error of ours, others are raised."""
    try:
        return Outcome(member.key, member, work())
    except BatchmergeError as problem:
        _LOG.warning("%s: %s", member.key, problem)
        return Outcome(member.key, member, problem=problem)


def problems_of(outcomes: Iterable[Outcome[Any]]) -> dict[str, BatchmergeError]:
    """The errors of those that failed, by key."""
    return {outcome.key: outcome.problem for outcome in outcomes if outcome.problem}


def side_by_side(
    members: Sequence[Member], at_once: int, one: Callable[[Member], Outcome[T]], sessions: Sequence[OneSession]
) -> Iterator[Outcome[T]]:
    """Yields outcomes as they come, without those of members that had nothing to do. After a failure, which may be
    Spark's, sessions are opened again."""
    pool, ended = ThreadPoolExecutor(at_once, "batchmerge-member"), SimpleQueue[Future[Outcome[T]]]()
    failed, end = False, Event()

    def work(member: Member) -> Outcome[T]:
        with ending_with(end):
            raise_if_to_end()
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
            session.close()
        raise
    pool.shutdown()
    if failed:
        for session in sessions:
            session.forget()


def _next(queue: SimpleQueue[T]) -> T:
    """The next item. Only the main thread of a process gets interrupts, so others look whether they are to end."""
    while True:
        raise_if_to_end()
        with suppress(Empty):
            return queue.get(timeout=LOOK)

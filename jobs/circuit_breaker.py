"""Queries to systems that may not answer, about many tables: a system that is silent is not waited for at each."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from jobs.time_limit import ending_with, with_timeout
from resources.errors import TimeLimitReached, TransientError, Unavailable

T = TypeVar("T")
# Seconds that a system has to answer one question, if the caller names no others.
_LIMIT = 15
# Seconds after which an error is no answer, but the end of waiting for one. One that comes sooner costs others nothing.
_SLOW = 1.0
# Seconds without an answer after which a system has hung.
_HUNG = 60.0
# Unanswered questions in a row after which a system counts as down. One table alone may have a problem of its own.
_SEVERAL = 3


class CircuitBreaker:
    """The circuit breaker of one look at all systems. A system that has left several queries unanswered, and answered
    none meanwhile, is not queried again: each of its hundreds of tables would wait for the time limit.

    Args of the constructor:
        limit: seconds for each answer.
    """

    def __init__(self, limit: float | None = None) -> None:
        self._limit = limit or _LIMIT
        self._unanswered: dict[str, int] = defaultdict(int)
        self._end = threading.Event()

    def call(self, connection: str, name: str, question: Callable[[], T], limit: float | None = None) -> T:
        """The answer, within the time limit.

        Args:
            connection: name of the system's connection.
            name: what is queried, for error messages.
            limit: seconds for this answer.

        Raises:
            TransientError: no answer in time, or the system counts as down. BatchmergeError: raised by `question`.
            KeyboardInterrupt: nobody waits for answers any more.
        """
        with self._guarded(connection, name, _SLOW), ending_with(self._end):
            return with_timeout(limit or self._limit, name, question)

    def run(self, connection: str, name: str, work: Callable[[], T]) -> T:
        """The result of work that has a time limit of its own. A client may have a shorter one: a system that it has
        waited for so long (its fact `waited`) has hung too.

        Raises:
            TimeLimitReached: it hung. BatchmergeError: raised by `work`; or the system counts as down.
        """
        with self._guarded(connection, name, math.inf):
            try:
                return work()
            except TimeLimitReached:
                raise
            except Unavailable as problem:
                waited = problem.facts.get("waited")
                if not isinstance(waited, int | float) or waited < _HUNG:
                    raise
                facts = {"seconds": waited, **problem.facts}
                raise TimeLimitReached(problem.what, where=problem.where, remedy=problem.remedy, **facts) from problem

    @contextmanager
    def _guarded(self, connection: str, name: str, slow: float) -> Iterator[None]:
        """Begins nothing where the system is down. Counts what ends without an answer: a time limit is reached, or a
        transient error takes so many seconds."""
        if self._unanswered[connection] >= _SEVERAL:
            raise Unavailable(f"not queried: {connection} has just left {_SEVERAL} queries unanswered", where=name)
        began = time.monotonic()
        try:
            yield
        except TransientError as problem:
            silent = isinstance(problem, TimeLimitReached) or time.monotonic() - began > slow
            self._unanswered[connection] = self._unanswered[connection] + 1 if silent else 0
            raise
        self._unanswered[connection] = 0

    def end(self) -> None:
        """Ends all queries, also those under way in other threads."""
        self._end.set()

    def open(self, connection: str) -> None:
        """Counts the system as down from now on: a query about many topics at once had no answer."""
        self._unanswered[connection] = _SEVERAL

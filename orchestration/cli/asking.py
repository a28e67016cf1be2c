"""Queries to systems that may not answer, for `batchmerge status` and the metrics."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from jobs.time_limit import ending_with, with_timeout
from resources.errors import TransientError, Unavailable

T = TypeVar("T")
# Seconds that a system has to answer one question.
_LIMIT = 15
# Unanswered questions after which a system counts as down. One table alone may have a problem of its own.
_SEVERAL = 3


class Asking:
    """The queries of one look at all systems. A system that has left several of them unanswered is not queried again:
    each of its hundreds of tables would wait for the time limit."""

    def __init__(self) -> None:
        self._unanswered: dict[str, int] = defaultdict(int)
        self._end = threading.Event()

    def ask(self, connection: str, name: str, question: Callable[[], T]) -> T:
        """The answer, within the time limit.

        Args:
            connection: name of the system's connection.
            name: what is queried, for error messages.

        Raises:
            TransientError: no answer in time, or the system counts as down. BatchmergeError: raised by `question`.
            KeyboardInterrupt: nobody waits for answers any more.
        """
        if self._unanswered[connection] >= _SEVERAL:
            raise Unavailable(f"not queried: {connection} has just left {_SEVERAL} queries unanswered", where=name)
        try:
            with ending_with(self._end):
                return with_timeout(_LIMIT, name, question)
        except TransientError:
            self._unanswered[connection] += 1
            raise

    def end(self) -> None:
        """Ends all queries, also those under way in other threads."""
        self._end.set()

    def gave_up(self, connection: str) -> None:
        """Counts the system as down: a query about many topics at once had no answer."""
        self._unanswered[connection] = _SEVERAL

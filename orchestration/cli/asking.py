"""Questions to systems that may not answer, for `batchmerge status` and the metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from jobs.time_limit import with_timeout
from resources.errors import TransientError, Unavailable

T = TypeVar("T")
# Seconds that a system has to answer one question.
_LIMIT = 15
# Unanswered questions after which a system counts as down. One table alone may have a problem of its own.
_SEVERAL = 3


class Asking:
    """One look at all systems. A system that has left several questions unanswered is not asked any more: hundreds of
    tables that are there would wait for their turn, each for seconds."""

    def __init__(self) -> None:
        self._unanswered: dict[str, int] = defaultdict(int)

    def ask(self, connection: str, name: str, question: Callable[[], T]) -> T:
        """The answer within seconds.

        Args:
            connection: whose system is asked.
            name: of what is asked, for people.

        Raises:
            TransientError: there was none in time, or others had none. BatchmergeError: the question's own.
        """
        if self._unanswered[connection] >= _SEVERAL:
            raise Unavailable(f"not asked: {connection} has not answered {_SEVERAL} questions just now", where=name)
        try:
            return with_timeout(_LIMIT, name, question)
        except TransientError:
            self._unanswered[connection] += 1
            raise

    def gave_up(self, connection: str) -> None:
        """What was asked about many at once had no answer."""
        self._unanswered[connection] = _SEVERAL

"""What a continuous step knows of its topics from tick to tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from orchestration.components.suspended_members import SuspendedMembers
from orchestration.continuous.decision import retry_at
from resources.errors import BatchmergeError

T = TypeVar("T")


class _Failure(NamedTuple):
    """The last error of a topic, which is one of `times` in a row."""

    problem: BatchmergeError
    times: int
    next_try: float


@dataclass
class Topics:
    """State of each topic between two ticks.

    Attributes:
        suspended: those that have hung, in this run or another one.
        settled: the state of each topic when nothing was left to do for it.
        _held_up_others: those that failed in a try in which others succeeded.
    """

    suspended: SuspendedMembers
    settled: dict[str, object] = field(default_factory=dict)
    _failures: dict[str, _Failure] = field(default_factory=dict)
    _held_up_others: set[str] = field(default_factory=set)

    @property
    def problems(self) -> dict[str, BatchmergeError]:
        """The last error of each topic that failed."""
        return {topic: one.problem for topic, one in self._failures.items()}

    def is_due(self, topic: str, state: object, now: float) -> bool:
        """Whether the topic has changed since nothing was left to do, and is in no pause after a failure."""
        failure = self._failures.get(topic)
        return self.settled.get(topic) != state and (failure is None or now >= failure.next_try)

    def not_suspended(self, due: Mapping[str, T]) -> dict[str, T]:
        """Of these topics those that are not suspended. Another run may change that until the step's turn has come."""
        suspended = self.suspended.now() if due else {}
        return {topic: one for topic, one in due.items() if topic not in suspended}

    def record(self, tried: Mapping[str, object], problems: Mapping[str, BatchmergeError], now: float) -> None:
        """Records the results of a try, in the step's turn: the state of each tried topic, and which have failed."""
        done = tried.keys() - problems.keys()
        for topic in done:
            self.settled[topic] = tried[topic]
            self._failures.pop(topic, None)
        for topic, problem in problems.items():
            times = self._failures[topic].times + 1 if topic in self._failures else 1
            self._failures[topic] = _Failure(problem, times, retry_at(now, times))
        self.suspended.record(done, problems, self._held_up_others)
        self._held_up_others = {topic for topic in self._failures if done or topic in self._held_up_others}

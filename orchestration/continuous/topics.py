"""What a continuous step knows of its topics from tick to tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from orchestration.components.suspended_members import SuspendedMembers
from orchestration.continuous.decision import Backoff
from resources.errors import BatchmergeError

T = TypeVar("T")


@dataclass
class Topics:
    """State of each topic between two ticks.

    Attributes:
        suspended: those that have hung, in this run or another one.
        settled: the state of each topic when nothing was left to do for it.
        problems: the last error of each topic that failed.
        _backoffs: of the topics that have failed.
        _held_up_others: those that failed in a try in which others succeeded.
    """

    suspended: SuspendedMembers
    settled: dict[str, object] = field(default_factory=dict)
    problems: dict[str, BatchmergeError] = field(default_factory=dict)
    _backoffs: dict[str, Backoff] = field(default_factory=dict)
    _held_up_others: set[str] = field(default_factory=set)

    def is_due(self, topic: str, state: object, now: float) -> bool:
        """Whether the topic has changed since nothing was left to do, and is in no pause after a failure."""
        return self.settled.get(topic) != state and now >= self._backoffs.get(topic, Backoff()).next_try

    def not_suspended(self, due: Mapping[str, T]) -> dict[str, T]:
        """Of these topics those that are not suspended. Another run may change that until the step's turn has come."""
        suspended = self.suspended.now() if due else {}
        return {topic: one for topic, one in due.items() if topic not in suspended}

    def record(self, tried: Mapping[str, object], problems: Mapping[str, BatchmergeError], now: float) -> None:
        """Records the results of a try, in the step's turn: the state of each tried topic, and which have failed."""
        done = tried.keys() - problems.keys()
        for topic in done:
            self.settled[topic] = tried[topic]
            self._backoffs.pop(topic, None)
            self.problems.pop(topic, None)
        for topic, problem in problems.items():
            self._backoffs[topic] = self._backoffs.get(topic, Backoff()).after_failure(now)
            self.problems[topic] = problem
        self.suspended.record(done, problems, self._held_up_others)
        self._held_up_others = {topic for topic in self._backoffs if done or topic in self._held_up_others}

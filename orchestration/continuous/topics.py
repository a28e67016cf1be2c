"""What a continuous step knows of its topics from tick to tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from orchestration.components.resting import Rests
from orchestration.continuous.decision import retry_at
from resources.errors import BatchmergeError

T = TypeVar("T")


@dataclass
class Topics:
    """State of each topic between two ticks.

    Attributes:
        rests: those that have hung, in this run or another one.
        settled: the state of each topic when nothing was left to do for it.
        problems: the last error of each topic that failed.
        _failed: how often each has failed in a row, and when it is tried again.
        _in_the_way: topics that have failed, while others were done.
    """

    rests: Rests
    settled: dict[str, object] = field(default_factory=dict)
    problems: dict[str, BatchmergeError] = field(default_factory=dict)
    _failed: dict[str, tuple[int, float]] = field(default_factory=dict)
    _in_the_way: set[str] = field(default_factory=set)

    def is_due(self, topic: str, state: object, now: float) -> bool:
        """Whether the topic has changed since nothing was left to do, and is in no pause after a failure."""
        _, again = self._failed.get(topic, (0, 0.0))
        return self.settled.get(topic) != state and now >= again

    def awake(self, due: Mapping[str, T]) -> dict[str, T]:
        """Of these topics those that do not rest now. Another run may change that until the step's turn has come."""
        rests = self.rests.now() if due else {}
        return {topic: one for topic, one in due.items() if topic not in rests}

    def took(self, tried: Mapping[str, object], problems: Mapping[str, BatchmergeError], now: float) -> None:
        """Records the results of a try, in the step's turn: the state of each tried topic, and which have failed."""
        done = tried.keys() - problems.keys()
        for topic in done:
            self.settled[topic] = tried[topic]
            self._failed.pop(topic, None)
            self.problems.pop(topic, None)
        for topic, problem in problems.items():
            times = self._failed.get(topic, (0, 0.0))[0] + 1
            self._failed[topic] = times, retry_at(now, times)
            self.problems[topic] = problem
        self.rests.note(done, problems, self._in_the_way)
        self._in_the_way = {topic for topic in self._failed if done or topic in self._in_the_way}

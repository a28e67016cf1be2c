"""What a continuous step knows of its topics from tick to tick."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from jobs.spec.members import Member
from orchestration.components.suspended_members import SuspendedMembers
from orchestration.continuous.decision import retry_at
from orchestration.pools.turns import Over
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

    def work_in_turn(
        self,
        due: Mapping[str, tuple[Member, object]],
        turn: Callable[[], AbstractContextManager[None]],
        work: Callable[[list[Member]], tuple[Collection[str], Mapping[str, BatchmergeError]]],
    ) -> None:
        """Does the work for those that are not suspended, in the step's turn. If the step is over before its turn has
        come, nothing is done: the ticks end, and what was done before is reported.

        Args:
            due: by topic its member, and its state.
            work: returns the topics that have more to do, and the errors of those that failed.
        """
        if not self.not_suspended(due):
            return
        with suppress(Over), turn():
            due = self.not_suspended(due)
            unfinished, problems = work([member for member, _ in due.values()])
            tried = {topic: None if topic in unfinished else state for topic, (_, state) in due.items()}
            self.record(tried, problems, time.monotonic())

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

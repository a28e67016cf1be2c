"""Those who land side by side are read for together, and what fails for one of them fails for no other."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jobs.landing.reads import SharedReads
from jobs.landing.task_report import Outcome, TaskReport
from resources.errors import BatchmergeError, TerminalError, Unavailable


class Kafka:
    """Notes who was read for together; what is wanted is a number, which the report has as its count."""

    def __init__(self, *fails: int, problem: type[BatchmergeError] = TerminalError) -> None:
        self.passes: list[list[int]] = []
        self._fails, self._problem = fails, problem

    def __call__(self, _spark: Any, wanted: Sequence[Any]) -> list[list[TaskReport]]:
        self.passes.append(sorted(wanted))
        if bad := set(self._fails).intersection(wanted):
            raise self._problem(f"cannot read {bad}")
        return [[TaskReport(outcome=Outcome(number))] for number in wanted]


def landed(kafka: Kafka, numbers: Sequence[int], passes: int = 1, at_once: int = 2) -> dict[int, Any]:
    """What each of them has read, `passes` times; those that are divisible by 10 read nothing."""
    reads: Any = SharedReads(len(numbers), at_once, kafka)

    def one(number: int) -> Any:
        with reads.taking_part():
            try:
                found = [reads(None, number) for _ in range(passes if number % 10 else 0)]
                return [report.outcome.landed for reports in found for report in reports]
            except BatchmergeError as problem:
                return str(problem)

    with ThreadPoolExecutor(len(numbers)) as pool:
        return dict(zip(numbers, pool.map(one, numbers), strict=True))


def test_one_pass_reads_for_all_that_wait() -> None:
    kafka = Kafka()
    found = landed(kafka, [1, 2, 3, 10, 20], passes=2)
    assert found == {1: [1, 1], 2: [2, 2], 3: [3, 3], 10: [], 20: []}
    assert kafka.passes == [[1, 2, 3], [1, 2, 3]]


def test_failure_is_of_those_who_have_caused_it() -> None:
    kafka = Kafka(2)
    found = landed(kafka, [1, 2, 3])
    assert (found[1], found[3]) == ([1], [3])
    assert "cannot read {2}" in found[2]
    assert sorted(kafka.passes) == [[1], [1, 2, 3], [2], [3]]


def test_what_does_not_answer_is_not_asked_for_each() -> None:
    kafka = Kafka(2, problem=Unavailable)
    assert ["cannot read" in said for said in landed(kafka, [1, 2, 3]).values()] == [True] * 3
    assert kafka.passes == [[1, 2, 3]]

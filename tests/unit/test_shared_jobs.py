"""Topics share Spark jobs; what fails for one of them fails for no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobs.members.shared_jobs import Participant, SharedJobs, Slot
from jobs.spark.sessions import OneSession
from resources.errors import BatchmergeError, Interrupted, TerminalError, Unavailable


class Spark:
    """Notes the jobs that were run; what is wanted is a number, and so is the answer."""

    def __init__(self, *fails: int, problem: type[BatchmergeError] = TerminalError) -> None:
        self.jobs: list[list[int]] = []
        self._fails, self._problem = fails, problem

    def __call__(self, wanted: Sequence[int]) -> list[int]:
        self.jobs.append(sorted(wanted))
        if bad := set(self._fails).intersection(wanted):
            raise self._problem(f"cannot do {bad}")
        return list(wanted)


def sessions(count: int) -> list[OneSession]:
    """Each opens a session of its own, which stands for it."""
    numbers: list[Any] = list(range(count))
    return [OneSession(lambda number=number: number) for number in numbers]  # type: ignore[misc]


def done(
    shared: SharedJobs[int, int], numbers: Sequence[int], work: Callable[[Participant[int, int], int], Any]
) -> dict[int, Any]:
    """What each of them has got, or what it failed with."""

    def one(number: int) -> Any:
        try:
            with shared.join() as participant:
                return work(participant, number)
        except BatchmergeError as problem:
            return str(problem)

    with ThreadPoolExecutor(len(numbers)) as pool:
        return dict(zip(numbers, pool.map(one, numbers), strict=True))


def has_session(slot: Slot) -> bool:
    try:
        slot.get("landing")
    except Interrupted:
        return False
    return True


def test_one_job_is_for_all_that_wait() -> None:
    spark = Spark()
    numbers = [1, 2, 3, 10, 20]
    found = done(
        SharedJobs(len(numbers), sessions(2), spark),
        numbers,
        lambda participant, number: [participant(number) for _ in range(2 if number % 10 else 0)],
    )
    assert found == {1: [1, 1], 2: [2, 2], 3: [3, 3], 10: [], 20: []}
    assert spark.jobs == [[1, 2, 3], [1, 2, 3]]


def test_failure_is_of_those_who_have_caused_it() -> None:
    spark, numbers = Spark(2, 5), range(8)
    found = done(SharedJobs(8, sessions(2), spark), numbers, lambda participant, number: participant(number))
    assert {number for number, answer in found.items() if answer == number} == {0, 1, 3, 4, 6, 7}
    assert ("cannot do {2}" in found[2], "cannot do {5}" in found[5]) == (True, True)
    assert len(spark.jobs) == 1 + 2 + 4 + 4


def test_what_does_not_answer_is_not_asked_for_each() -> None:
    spark = Spark(2, problem=Unavailable)
    found = done(SharedJobs(3, sessions(2), spark), [1, 2, 3], lambda participant, number: participant(number))
    assert ["cannot do" in answer for answer in found.values()] == [True] * 3
    assert spark.jobs == [[1, 2, 3]]


def test_nobody_waits_for_one_that_goes_alone() -> None:
    spark, others = Spark(), threading.Event()

    def work(participant: Participant[int, int], number: int) -> int:
        if number == 3:
            participant.runs_alone()
            others.wait()  # it has a session meanwhile, and the others are done before it
            return 0
        found = participant(number)
        if len(spark.jobs) == 1:
            others.set()
        return found

    assert done(SharedJobs(3, sessions(2), spark), [1, 2, 3], work) == {1: 1, 2: 2, 3: 0}
    assert spark.jobs == [[1, 2]]


def test_no_two_at_work_have_the_same_session() -> None:
    at_work, lock = list[Any](), threading.Lock()

    def here(participant: Participant[int, int]) -> None:
        mine: Any = participant.slot.get("any role")
        with lock:
            assert mine not in at_work
            at_work.append(mine)
        with lock:
            at_work.remove(mine)

    def work(participant: Participant[int, int], number: int) -> int:
        here(participant)
        found = participant(number)
        here(participant)
        return found

    assert done(SharedJobs(20, sessions(3), Spark()), range(20), work) == dict(zip(range(20), range(20), strict=True))


def test_work_that_was_given_up_keeps_no_session() -> None:
    shared, answers = SharedJobs(3, sessions(1), Spark()), list[Any]()
    with shared.join() as given_up:
        thread = threading.Thread(target=lambda: answers.append(given_up(1)))
        thread.start()
        while has_session(given_up.slot):  # until it waits, and has given its session back
            pass
    assert done(shared, [2, 3], lambda participant, number: participant(number)) == {2: 2, 3: 3}
    thread.join()
    assert answers == [1]
    with pytest.raises(Interrupted, match="given up"):
        given_up.slot.get("landing")

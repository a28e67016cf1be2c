"""A system that is silent is not waited for at each of its tables."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest

from jobs.circuit_breaker import CircuitBreaker
from jobs.time_limit import ending_with
from resources.errors import BatchmergeError, CommitFailed, TimeLimitReached, Unavailable


def _failing(problem: BatchmergeError) -> Callable[[], None]:
    def work() -> None:
        raise problem

    return work


def _is_tried(breaker: CircuitBreaker, connection: str) -> bool:
    tried = list[int]()
    with suppress(Unavailable):
        breaker.run(connection, "t", lambda: tried.append(1))
    return bool(tried)


@pytest.mark.parametrize(
    ("problems", "tried"),
    [
        ([TimeLimitReached("no answer")] * 2, True),
        ([TimeLimitReached("no answer")] * 3, False),
        ([CommitFailed("another run commits")] * 9, True),
        ([TimeLimitReached("no answer")] * 2 + [None] + [TimeLimitReached("no answer")] * 2, True),
    ],
    ids=["two", "silent", "answers with errors", "answers in between"],
)
def test_work_is_not_tried_where_the_work_before_it_hung(problems: list[BatchmergeError | None], tried: bool) -> None:
    breaker = CircuitBreaker()
    for problem in problems:
        if problem is None:
            breaker.run("clickhouse", "t", lambda: None)
            continue
        with pytest.raises(type(problem)):
            breaker.run("clickhouse", "t", _failing(problem))
    assert _is_tried(breaker, "clickhouse") is tried
    assert _is_tried(breaker, "bigquery")


def test_long_work_that_fails_has_not_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catch-up of an hour that ends by a short outage is tried again."""
    clock = itertools.count(0.0, 2400.0)
    monkeypatch.setattr("jobs.circuit_breaker.time", SimpleNamespace(monotonic=clock.__next__))
    with pytest.raises(Unavailable) as caught:
        CircuitBreaker().run("clickhouse", "t", _failing(Unavailable("no answer", waited=2.0)))
    assert not isinstance(caught.value, TimeLimitReached)


def test_work_that_its_client_gives_up_after_minutes_has_hung() -> None:
    """Also where that is sooner than the time limit."""
    breaker = CircuitBreaker()
    for _ in range(3):
        with pytest.raises(TimeLimitReached, match="no answer") as hung:
            breaker.run("clickhouse", "t", _failing(Unavailable("no answer", code=210, waited=300.0)))
        assert hung.value.facts["code"] == 210
        assert hung.value.facts["seconds"] == 300
        with pytest.raises(CommitFailed):
            breaker.run("bigquery", "t", _failing(CommitFailed("another run commits")))
    assert (_is_tried(breaker, "clickhouse"), _is_tried(breaker, "bigquery")) == (False, True)


def test_tables_that_fail_at_once_keep_no_other_from_being_asked() -> None:
    breaker = CircuitBreaker()
    for _ in range(9):
        with pytest.raises(Unavailable, match="no such bucket"):
            breaker.call("clickhouse", "t", _failing(Unavailable("no such bucket")))
    assert _is_tried(breaker, "clickhouse")


def test_questions_end_with_the_work_that_asks_them() -> None:
    end = threading.Event()

    def question() -> None:
        end.set()
        threading.Event().wait()

    with ending_with(end), pytest.raises(KeyboardInterrupt):
        CircuitBreaker().call("clickhouse", "t", question)

"""Work that hangs is given up, and the error says what it was about."""

from __future__ import annotations

import itertools
import threading
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

import pytest

from jobs.batch_error_context import batch_error_context
from jobs.time_limit import with_timeout
from resources.errors import SourceError, Unavailable
from tests.kit.batches import batch
from tests.kit.waiting import PATIENCE


@pytest.mark.parametrize(
    ("within", "facts"),
    [(batch_error_context([batch(5), batch(7)]), {"batch": "5 to 7"}), (nullcontext(), {})],
    ids=["in batches", "outside"],
)
def test_error_of_work_that_hangs_names_its_batches(
    within: AbstractContextManager[None], facts: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped, looks = threading.Event(), threading.Event(), itertools.count()

    def clock() -> float:
        """The time is over as soon as the work is where it hangs."""
        if (looked := next(looks)) > 0:
            assert begun.wait(PATIENCE)
        return float(looked)

    def work() -> None:
        with batch_error_context([batch(4)]):
            pass
        with within:
            begun.set()
            assert stopped.wait(PATIENCE)

    monkeypatch.setattr("jobs.time_limit.time", SimpleNamespace(monotonic=clock))
    with pytest.raises(Unavailable, match=r"t: no answer within the time limit of 0\.2 s") as caught:
        with_timeout(0.2, "t", work, stopped.set)
    assert stopped.is_set()
    assert caught.value.facts == {"seconds": 0.2, **facts}


def test_time_begins_again_with_each_thing_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done, stopped, seconds = list[int](), threading.Event(), itertools.count(0.0, 2.0)

    def clock() -> float:
        """Two seconds pass from look to look, and one thing is done meanwhile, up to the eighth."""
        if len(done) < 8:
            done.append(len(done))
        return next(seconds)

    def work() -> None:
        assert stopped.wait(PATIENCE)

    monkeypatch.setattr("jobs.time_limit.time", SimpleNamespace(monotonic=clock))
    with pytest.raises(Unavailable, match=r"within the time limit of 2\.2 s"):
        with_timeout(2.2, "t", work, stopped.set, done)
    assert done == list(range(8))


def test_answer_and_error_in_time_are_those_of_the_work() -> None:
    def fail() -> None:
        with batch_error_context([batch(9)]):
            raise SourceError("the topic is gone")

    assert with_timeout(60, "t", lambda: 17) == 17
    with pytest.raises(SourceError) as caught:
        with_timeout(60, "t", fail)
    assert caught.value.facts == {"batch": "9"}

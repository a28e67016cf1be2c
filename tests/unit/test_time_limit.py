"""Work that hangs is given up, and the error says what it was about."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

import pytest

from jobs.batch_error_context import batch_error_context
from jobs.time_limit import with_timeout
from resources.errors import SourceError, Unavailable
from tests.kit.batches import batch


@pytest.mark.parametrize(
    ("within", "facts"),
    [(batch_error_context([batch(5), batch(7)]), {"batch": "5 to 7"}), (nullcontext(), {})],
    ids=["in batches", "outside"],
)
def test_error_of_work_that_hangs_names_its_batches(
    within: AbstractContextManager[None], facts: dict[str, object]
) -> None:
    stopped = threading.Event()

    def work() -> None:
        with batch_error_context([batch(4)]):
            pass
        with within:
            assert stopped.wait(60)

    with pytest.raises(Unavailable, match=r"t: no answer within the time limit of 0\.2 s") as caught:
        with_timeout(0.2, "t", work, stopped.set)
    assert stopped.is_set()
    assert caught.value.facts == {"seconds": 0.2, **facts}


def test_time_begins_again_with_each_thing_that_is_done() -> None:
    done, stopped = list[int](), threading.Event()

    def work() -> None:
        while len(done) < 8:
            stopped.wait(0.3)
            done.append(len(done))
        stopped.wait(60)

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

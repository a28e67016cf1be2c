"""Work that hangs is given up, and the error says what it was about."""

from __future__ import annotations

import threading

import pytest

from jobs.batch_error_context import batch_error_context
from jobs.time_limit import with_timeout
from resources.errors import SourceError, Unavailable
from tests.kit.batches import batch


def test_error_of_work_that_hangs_names_its_batches() -> None:
    stopped = threading.Event()

    def work() -> None:
        with batch_error_context([batch(4)]):
            pass
        with batch_error_context([batch(5), batch(7)]):
            assert stopped.wait(60)

    with pytest.raises(Unavailable, match=r"t: no answer within the time limit of 0\.2 s") as caught:
        with_timeout(0.2, "t", work, stopped.set)
    assert stopped.is_set()
    assert caught.value.facts == {"batch": "5 to 7"}


def test_error_of_work_that_hangs_outside_of_batches_names_none() -> None:
    stopped = threading.Event()

    def work() -> None:
        with batch_error_context([batch(4)]):
            pass
        assert stopped.wait(60)

    with pytest.raises(Unavailable) as caught:
        with_timeout(0.2, "t", work, stopped.set)
    assert caught.value.facts == {}


def test_answer_and_error_in_time_are_those_of_the_work() -> None:
    def fail() -> None:
        with batch_error_context([batch(9)]):
            raise SourceError("the topic is gone")

    assert with_timeout(60, "t", lambda: 17) == 17
    with pytest.raises(SourceError) as caught:
        with_timeout(60, "t", fail)
    assert caught.value.facts == {"batch": "9"}

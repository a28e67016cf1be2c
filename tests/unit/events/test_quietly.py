"""Events are sent in the context of their step, and data does not wait for them for ever."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import pytest

from jobs.events.quietly import quietly
from jobs.spec.control import Control

STEP = ContextVar("step", default="none")


def test_events_are_sent_in_the_context_of_their_step() -> None:
    STEP.set("landing")
    found = list[str]()
    assert quietly(Control(), "p", lambda: found.append(STEP.get()))
    assert found == ["landing"]


@pytest.mark.parametrize(
    ("hangs", "warning"),
    [
        (True, "control topic c: no answer within the time limit of 1 s"),
        (False, "the next run publishes them: ValueError\n"),
    ],
)
def test_what_is_not_sent_is_a_warning(hangs: bool, warning: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = threading.Event()

    def work() -> None:
        if not hangs:
            raise ValueError("a bug")
        answer.wait(60)

    try:
        assert not quietly(Control(topic="c", time_limit_seconds=1), "p", work)
    finally:
        answer.set()
    assert warning in caplog.text

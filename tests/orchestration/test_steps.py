"""Steps of a run in this process: who is under way, and how they end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from orchestration.cli import job_runs
from orchestration.cli.steps import _Step, _Steps
from resources.errors import Unavailable


class Active:
    """The plan: all of its steps have begun; a further one finds its pool taken."""

    is_complete = False

    def __init__(self) -> None:
        self.verified = list[str]()

    def get_steps_to_execute(self) -> list[Any]:
        raise Unavailable("another run is at work")

    def verify_complete(self, job: object, step: str) -> None:
        del job
        self.verified.append(step)

    def plan_events_iterator(self, job: object) -> list[Any]:
        del job
        return []


def _step(steps: _Steps) -> _Step:
    context: Any = SimpleNamespace(step=SimpleNamespace(key="a"))
    return _Step(context, steps._queue, steps._end)


def test_a_retry_that_begins_before_the_end_of_its_first_try_is_read_goes_on() -> None:
    active: Any = Active()
    steps = _Steps(None, active)  # type: ignore[arg-type]  # not asked
    first, retry = _step(steps), _step(steps)
    steps._running["a"] = retry
    steps._queue.put((first, None))
    assert list(steps._heard()) == []
    assert (steps._running, active.verified) == ({"a": retry}, [])
    steps._queue.put((retry, None))
    assert list(steps._heard()) == []
    assert (steps._running, active.verified) == ({}, ["a"])


def test_an_interrupt_while_others_are_waited_for_after_a_refusal_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    active: Any = Active()
    steps = _Steps(None, active)  # type: ignore[arg-type]  # not asked
    step = _step(steps)
    steps._running["a"] = step

    def next_event() -> Any:
        if not steps._end.is_set():
            raise KeyboardInterrupt
        return step, None

    monkeypatch.setattr(steps, "_next", next_event)
    with pytest.raises(KeyboardInterrupt):
        list(steps.events())
    assert steps._running == {}


def test_a_run_that_was_cancelled_is_no_refused_one(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = SimpleNamespace(dagster_run=SimpleNamespace(status=dg.DagsterRunStatus.CANCELED))
    job: Any = SimpleNamespace(all_node_defs=[], execute_in_process=lambda **_: ended)
    refused = SimpleNamespace(refusal=Unavailable("another run is at work"))
    monkeypatch.setattr(job_runs, "PoolWaits", lambda *_: refused)
    with pytest.raises(KeyboardInterrupt):
        job_runs.execute(instance, job, {}, {}, wait=False)

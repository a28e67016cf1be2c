"""Seconds of a merge by stage, whose sum is the merge's."""

from __future__ import annotations

import pytest

from jobs.destinations.stages import Stages


def test_a_stage_has_the_seconds_of_all_its_work_without_those_of_stages_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter([0.0, 1.0, 3.0, 4.0, 9.0, 10.0, 20.0, 20.5])
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))
    clock = Stages()

    def work() -> int:
        return clock.time("insert", lambda: 2) + clock.time("insert", lambda: 3)

    assert clock.time("state", work) == 5
    assert clock.time("clean-up", lambda: 1) == 1
    assert clock.seconds == {"insert": 7.0, "state": 3.0, "clean-up": 0.5}

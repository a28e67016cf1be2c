"""When a ClickHouse lease counts as left behind by a dead run, and how often a recovery is asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from jobs.destinations.leases import LeaseState
from orchestration.sensors.leases import Asked, after_asking, is_due, left_behind

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
STATUS = dg.DagsterRunStatus


def _lease(batch: int = 3, seconds_ago: float = 10) -> LeaseState:
    changed = NOW - timedelta(seconds=seconds_ago)
    return LeaseState("p", "d.t", 1, "host:1", "owner", "run-1", 1, batch, None, changed, ())


@pytest.mark.parametrize(
    ("lease", "status", "dead", "reason"),
    [
        (_lease(batch=0), STATUS.FAILURE, False, "batch 0 is complete"),
        (_lease(), STATUS.STARTED, False, "which is started"),
        (_lease(), STATUS.QUEUED, False, "which is queued"),
        (_lease(), STATUS.CANCELING, False, "which is canceling"),
        (_lease(), STATUS.FAILURE, True, "has ended (failure)"),
        (_lease(), STATUS.CANCELED, True, "has ended (canceled)"),
        # A step that failed although its run counts as done: a retry of another step, say.
        (_lease(), STATUS.SUCCESS, True, "has ended (success)"),
        (_lease(seconds_ago=99), None, False, "it has 100 s"),
        (_lease(seconds_ago=100), None, True, "unknown to this Dagster instance, 100 s ago"),
    ],
)
def test_who_is_dead(lease: LeaseState, status: dg.DagsterRunStatus | None, dead: bool, reason: str) -> None:
    found, text = left_behind(lease, status, NOW, time_limit=100)
    assert found == dead
    assert reason in text


def test_asks_at_once_then_after_pauses_that_double() -> None:
    assert is_due(None, [_lease()], now=0)
    asked, at = None, 0.0
    pauses = []
    for _ in range(9):
        asked = after_asking(asked, 3, at)
        pause = next(s for s in range(0, 4000, 60) if is_due(asked, [_lease()], at + s))
        pauses.append(pause)
        at += pause
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert is_due(Asked(batch=3, times=10_000, at=0), [_lease()], now=3600)


def test_another_batch_is_asked_for_at_once() -> None:
    asked = Asked(batch=3, times=5, at=0)
    assert is_due(asked, [_lease(batch=4)], now=1)
    assert after_asking(asked, 4, 1).times == 1

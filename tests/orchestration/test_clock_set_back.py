"""A clock that is set back by two hours, as by NTP after a start: no pause that was noted before gets longer."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from jobs.destinations.leases import LeaseState
from jobs.offsets import TopicPartition
from orchestration.components import suspended_members
from orchestration.components.launch import Launch
from orchestration.components.suspended_members import SuspendedMembers
from orchestration.continuous.decision import RUN, ContinuousCursor, Failed, remember
from orchestration.continuous.step import ContinuousStep, StepConfig
from orchestration.names import landing_key
from orchestration.sensors.leases import Asked, is_due
from orchestration.sensors.waiting import LagCursor, Waiting, observe
from resources.errors import TimeLimitReached
from tests.kit.flow import Flow

FLOW = Flow("t", ["append"], name="p", overrides={"interval": "1s"})
NOW = 1_000_000.0
AHEAD = NOW + 7200


def test_a_step_that_failed_waits_no_longer(instance: dg.DagsterInstance) -> None:
    failed = Failed(run="before", at=AHEAD, times=1, text="no")
    cursor = remember(ContinuousCursor(failed={"table": failed, RUN: failed}), None, NOW)
    assert {one.not_before - NOW for one in cursor.failed.values()} == {5}
    context: Any = SimpleNamespace(instance=instance, run=SimpleNamespace(tags={}), run_id="r", log=None)
    config = StepConfig(not_before=time.time() + 7200)
    step = ContinuousStep(context, Launch("p", FLOW.spec), config, landing_key("p"), "pool")
    assert 290 < step._works_from - time.monotonic() <= 300


def test_sensors_wait_no_longer() -> None:
    seen = Waiting({TopicPartition("t", 0): 9}, landing=9, tables=9)
    cursor = LagCursor(requested_at=AHEAD, waiting_marks=[(AHEAD, 9)], tables_marks=[(AHEAD, 9)])
    after = observe(cursor, seen, NOW)
    assert (after.requested_at, after.waiting_since, after.tables_since) == (NOW, NOW, NOW)
    lease = LeaseState(1, "host:1", "owner", "run-1", 1, 3, None, datetime.now(UTC), ())
    assert is_due(Asked(batch=3, times=1, at=AHEAD), [lease], NOW)


def test_a_suspension_is_no_longer(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    suspended, now = SuspendedMembers(instance, landing_key("p")), [AHEAD]
    monkeypatch.setattr(suspended_members, "time", SimpleNamespace(time=lambda: now[0]))
    suspended.record(["good"], {"hung": TimeLimitReached("no answer", seconds=600)})
    assert suspended.now().keys() == {"hung"}
    now[0] = NOW
    assert suspended.now() == {}

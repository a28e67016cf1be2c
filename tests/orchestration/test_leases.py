"""When a ClickHouse lease counts as left behind by a dead run, and how often a recovery is asked for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from jobs.destinations.leases import LeaseState
from orchestration import pauses
from orchestration.names import table_key
from orchestration.sensors import lease_state
from orchestration.sensors.leases import Asked, LeaseCursor, after_asking, is_due, left_behind
from tests.kit.flow import Flow

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
STATUS = dg.DagsterRunStatus


def _lease(batch: int = 3, seconds_ago: float = 10) -> LeaseState:
    changed = NOW - timedelta(seconds=seconds_ago)
    return LeaseState(1, "host:1", "owner", "run-1", 1, batch, None, changed, ())


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


def test_tables_of_one_name_on_two_connections_are_looked_at_and_recovered_apart(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [
        {"kind": "clickhouse", "table": "d.t", "mode": "append", "connection": connection}
        for connection in ("clickhouse", "other")
    ]
    spec = Flow("t", [], overrides={"tables": tables}).spec
    here, there = spec.tables
    monkeypatch.setattr(lease_state, "load_connections", lambda: None)
    monkeypatch.setattr(lease_state, "Pipeline", lambda *_: None)
    monkeypatch.setattr(lease_state, "_ends", lambda _: {})
    batches = {here.title: 3, there.title: 4}
    monkeypatch.setattr(
        lease_state,
        "_look",
        lambda _, table: lease_state._Looked(table, [_lease(batches[table.title], seconds_ago=1e6)]),
    )
    hours = dg.HourlyPartitionsDefinition(start_date=spec.since, end_offset=1)
    # As stored by versions that knew a table by its name alone.
    before = LeaseCursor(asked={"d.t": Asked(batch=3, times=1, at=0)}).model_dump_json()

    def tick(cursor: str | None = None) -> dg.SensorResult:
        return lease_state.tick(dg.build_sensor_context(instance, cursor), "p", spec, "clickhouse", hours)

    pauses.pause(instance, "p", spec, there, "anna")
    first = tick(before)
    assert [request.asset_selection for request in first.run_requests or ()] == [[table_key(here)]]
    assert json.loads(str(first.cursor))["asked"]["d.t"]["times"] == 2
    assert len(first.asset_events) == 2
    pauses.resume(instance, "p", spec, None, "anna")
    second = tick(first.cursor)
    assert [request.asset_selection for request in second.run_requests or ()] == [[table_key(there)]]
    assert second.asset_events == []
    assert "d.t on other: " in str(tick(second.cursor).skip_reason)

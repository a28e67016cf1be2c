"""Runs of the current hour may begin in the next one: they say in which they were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from jobs.destinations.leases import LeaseState
from orchestration.cli import job_runs
from orchestration.names import ASKED_AT_TAG, table_key
from orchestration.sensors import lag, lease_state
from orchestration.sensors.leases import LeaseCursor
from orchestration.sensors.waiting import Waiting
from tests.kit.flow import Flow
from tests.orchestration.launching import definitions

FLOW = Flow("t", ["append"], name="p", overrides={"trigger": {"records": 1}})
HOURS = dg.HourlyPartitionsDefinition(start_date=FLOW.spec.since, end_offset=1)
Found = tuple[str | None, Mapping[str, str]]


def _by_lag(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Found:
    monkeypatch.setattr(lag, "look_at", lambda *_: Waiting({}, 10, 0))
    found = lag.tick(dg.build_sensor_context(instance=instance), "p", FLOW.spec, HOURS)
    (request,) = found.run_requests or []
    return request.partition_key, request.tags


def _by_lease(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Found:
    del monkeypatch
    (table,) = FLOW.spec.tables
    left = LeaseState(1, "host:1", "owner", "run-1", 1, 3, None, datetime(2026, 5, 1, tzinfo=UTC), ())
    looked = [lease_state._Looked(table, [left])]
    (request,), _, _ = lease_state._recover(looked, LeaseCursor(), HOURS, instance, {table.table: None})
    assert request.asset_selection == [table_key(table)]
    return request.partition_key, request.tags


def _by_command(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Found:
    asked = list[tuple[Any, ...]]()

    def execute(*arguments: Any) -> None:
        asked.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(job_runs, "execute", execute)
    with pytest.raises(KeyboardInterrupt):
        job_runs.run_job(instance, definitions(FLOW), "p", {})
    ((_, _, tags, _, _, hour),) = asked
    return hour, tags


@pytest.mark.parametrize("ask", [_by_lag, _by_lease, _by_command])
def test_a_run_says_in_which_hour_it_was_asked_for(
    ask: Any, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour, tags = ask(instance, monkeypatch)
    assert f"{datetime.fromisoformat(tags[ASKED_AT_TAG]):%Y-%m-%d-%H:00}" == hour

"""A look at a system that hangs is given up, and the tick or the step says so. Without services."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from orchestration.components import landing
from orchestration.components.window import Window
from orchestration.sensors import lag
from resources.errors import TimeLimitReached
from tests.kit.batches import landed
from tests.kit.flow import Flow

FLOW = Flow("t", ["append"], name="p", overrides={"trigger": {"records": 1}, "batch": {"time_limit_seconds": 1}})
HOURS = dg.HourlyPartitionsDefinition(start_date=FLOW.spec.since, end_offset=1)


@pytest.fixture
def hangs() -> Iterator[Callable[..., Any]]:
    """It answers nothing, as long as the test runs."""
    answer = threading.Event()
    yield lambda *_, **__: answer.wait(10)
    answer.set()


def test_the_tick_of_the_lag_sensor_says_it(
    hangs: Callable[..., Any], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "_PATIENCE", 0.2, raising=False)
    monkeypatch.setattr(lag, "load_connections", hangs)
    found = lag.tick(dg.build_sensor_context(instance=instance), "p", FLOW.spec, HOURS)
    assert "systems of p: no answer within the time limit of 0.2 s" in str(found.skip_reason)


def test_reading_from_kafka_again_in_a_backfill_is_interrupted(
    hangs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted, batch = list[str](), landed(1)
    place = SimpleNamespace(landed=lambda: SimpleNamespace(batches=[batch]))
    pipeline: Any = SimpleNamespace(name="p", spec=FLOW.spec, intermediate=place, interrupt=interrupted.append)
    before = datetime.fromtimestamp(batch.batch.planned_at / 1000, UTC) - timedelta(hours=2)
    monkeypatch.setattr(landing, "from_time", lambda *_, **__: None)
    monkeypatch.setattr(landing, "reread_from_kafka", hangs)
    with pytest.raises(TimeLimitReached, match=r"landing of p: no answer within the time limit of 1 s"):
        landing._report(pipeline, Window(before, before + timedelta(hours=1)))
    assert interrupted == ["landing"]

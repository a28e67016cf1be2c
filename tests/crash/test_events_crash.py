"""kill -9 between data and its events, in the middle of the events, and a run that sleeps: each is published once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.events.messages import Event
from resources.connections import Connections
from tests.kit.driven_log import DrivenLog
from tests.kit.events import check_all_published, check_groups, events
from tests.kit.flow import Flow
from tests.kit.processes import asleep, end_of

pytestmark = pytest.mark.crash

MODES = ["append", "upsert_delete"]


@pytest.fixture
def log(stack: Path, connections: Connections, topic: Callable[..., str]) -> DrivenLog:
    """With a control topic of its own."""
    overrides = {"control": {"topic": f"control-{uuid.uuid4().hex[:8]}"}}
    return DrivenLog(Flow(topic(partitions=2), MODES, max_records=80, overrides=overrides), connections, stack)


def published(log: DrivenLog) -> list[Event]:
    return events(log.connections, log.flow.overrides["control"]["topic"])


def check(log: DrivenLog, at_once: bool = False) -> None:
    pipeline = log.flow.pipeline(log.connections)
    check_all_published(pipeline, published(log), at_once)
    check_groups(pipeline)
    log.check()


@pytest.mark.parametrize("point", ["events.ready.written", "events.table.written", "events.complete.written"])
def test_killed_before_the_very_first_events(point: str, log: DrivenLog) -> None:
    """Nothing in Kafka says that this pipeline has ever published anything."""
    log.grow(120)
    log.kill(point)
    log.run()
    check(log)


@pytest.mark.parametrize("point", ["events.ready.written", "events.table.written"])
def test_a_run_that_wakes_up_late_publishes_nothing(point: str, log: DrivenLog) -> None:
    """It sleeps with everything written and nothing committed; meanwhile a newer run publishes the same events."""
    log.grow(120)
    sleeper = log.start(point)
    with asleep(sleeper):
        assert "could not be published" not in log.run()
        before = published(log)
    code, output = end_of(sleeper)
    assert code == 0, output
    later = published(log)[len(before) :]
    assert "could not be published" in output, (output, [(e.type, e.timestamp) for e in later])
    check(log)
    later = published(log)[len(before) :]
    assert [e for e in later if e.type in ("commit_ready", "commit_table")] == []


def test_two_runs_at_once_publish_every_batch_once(log: DrivenLog) -> None:
    log.grow(240)
    log.two_at_once()
    log.run()
    check(log, at_once=True)

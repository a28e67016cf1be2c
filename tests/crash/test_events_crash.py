"""kill -9 between data and its events, in the middle of the events, and a run that sleeps: each is published once."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from resources.connections import Connections
from tests.kit import model
from tests.kit.events import check_all_published, check_groups, events
from tests.kit.flow import Flow, rows
from tests.kit.processes import asleep, end_of
from tests.kit.records import Record, bootstrap, produce, random_changes

pytestmark = pytest.mark.crash

MODES = ["append", "upsert_delete"]


@dataclass
class PublishingPipeline:
    """A flow with a control topic of its own, whose log grows from test to test."""

    flow: Flow
    control: str
    records: list[Record] = field(default_factory=list)

    def grow(self, connections: Connections) -> None:
        more = random_changes(len(self.records), 120, 30, 2)
        produce(bootstrap(connections), self.flow.topic, more)
        self.records.extend(more)

    def check(self, connections: Connections, at_once: bool = False) -> None:
        pipeline = self.flow.pipeline(connections)
        check_all_published(pipeline, events(connections, self.control), at_once)
        check_groups(pipeline)
        for mode in MODES:
            assert rows(connections, self.flow.table(mode)) == model.expected(self.records, mode)


def _publishing_pipeline(topic: Callable[..., str], **control: object) -> PublishingPipeline:
    name = f"control-{uuid.uuid4().hex[:8]}"
    overrides: dict[str, object] = {"control": {"topic": name, **control}}
    return PublishingPipeline(Flow(topic(partitions=2), MODES, max_records=80, overrides=overrides), name)


@pytest.mark.parametrize("point", ["events.ready.written", "events.table.written", "events.complete.written"])
def test_killed_before_the_very_first_events(
    point: str, stack: Path, connections: Connections, topic: Callable[..., str]
) -> None:
    """Nothing in Kafka says that this pipeline has ever published anything."""
    pipeline = _publishing_pipeline(topic)
    pipeline.grow(connections)
    code, output = pipeline.flow.run(stack, failpoint=point)
    assert code == -signal.SIGKILL, output
    code, output = pipeline.flow.run(stack)
    assert code == 0, output
    pipeline.check(connections)


@pytest.mark.parametrize("point", ["events.ready.written", "events.table.written"])
def test_a_run_that_wakes_up_late_publishes_nothing(
    point: str, stack: Path, connections: Connections, topic: Callable[..., str]
) -> None:
    """It sleeps with everything written and nothing committed; meanwhile a newer run publishes the same events."""
    pipeline = _publishing_pipeline(topic)
    pipeline.grow(connections)
    sleeper = pipeline.flow.start(stack, failpoint=f"{point}=stop")
    with asleep(sleeper):
        code, output = pipeline.flow.run(stack)
        assert code == 0, output
        assert "could not be published" not in output
        before = events(connections, pipeline.control)
    code, output = end_of(sleeper)
    assert code == 0, output
    assert "could not be published" in output, (
        output,
        [(e.type, e.timestamp) for e in events(connections, pipeline.control)[len(before) :]],
    )
    pipeline.check(connections)
    after = events(connections, pipeline.control)
    assert [e for e in after[len(before) :] if e.type in ("commit_ready", "commit_table")] == []


def test_two_runs_at_once_publish_every_batch_once(
    stack: Path, connections: Connections, topic: Callable[..., str]
) -> None:
    pipeline = _publishing_pipeline(topic)
    pipeline.grow(connections)
    pipeline.grow(connections)
    for run in [pipeline.flow.start(stack), pipeline.flow.start(stack)]:
        end_of(run)
    # One of them may have been interrupted, refused or silenced; whatever is left, the next run finishes.
    code, output = pipeline.flow.run(stack)
    assert code == 0, output
    pipeline.check(connections, at_once=True)

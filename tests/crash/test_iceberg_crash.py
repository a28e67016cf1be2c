"""kill -9 at every boundary, two runs at once, and a run that sleeps: the table equals the model every time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jobs import failpoints
from resources.connections import Connections
from tests.kit import model
from tests.kit.flow import Flow, rows
from tests.kit.records import Record, bootstrap, produce, random_changes

pytestmark = pytest.mark.crash

MODES = ["append", "upsert_delete"]


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


@dataclass
class Log:
    """A flow whose log grows from test to test, so that each kill also meets what the ones before it left."""

    flow: Flow
    records: list[Record] = field(default_factory=list)

    def grow(self, connections: Connections) -> None:
        more = random_changes(len(self.records), 120, 30, 2)
        produce(bootstrap(connections), self.flow.topic, more)
        self.records.extend(more)


@pytest.fixture(scope="module")
def log(module_topic: Callable[..., str]) -> Log:
    return Log(Flow(module_topic(partitions=2), MODES, max_records=80))


@pytest.mark.parametrize("point", failpoints.ALL)
def test_killed_run_is_finished_by_the_next(point: str, log: Log, stack: Path, connections: Connections) -> None:
    log.grow(connections)
    code, output = log.flow.run(stack, failpoint=point)
    assert code == -signal.SIGKILL, output
    code, output = log.flow.run(stack)
    assert code == 0, output
    for mode in MODES:
        assert rows(connections, log.flow.table(mode)) == model.expected(log.records, mode), (point, mode)


@pytest.mark.parametrize("point", ["land.written", "merge.written"])
def test_run_that_wakes_up_late_is_refused(
    point: str, stack: Path, connections: Connections, topic: Callable[..., str]
) -> None:
    flow = Flow(topic(partitions=2), MODES)
    records = random_changes(3, 300, 30, 2)
    produce(bootstrap(connections), flow.topic, records)
    sleeper = flow.start(stack, failpoint=f"{point}=stop")
    try:
        while not _stopped(sleeper.pid):
            assert sleeper.poll() is None, "ended before the boundary"
            time.sleep(0.05)
        code, output = flow.run(stack)
        assert code == 0, output
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
    assert sleeper.stdout
    output = sleeper.stdout.read()
    sleeper.wait(timeout=300)
    assert "swept this attempt away" in output or "has committed" in output, output
    for mode in MODES:
        assert rows(connections, flow.table(mode)) == model.expected(records, mode)


def test_two_runs_at_once(stack: Path, connections: Connections, topic: Callable[..., str]) -> None:
    flow = Flow(topic(partitions=2), MODES, max_records=100)
    records = random_changes(4, 400, 30, 2)
    produce(bootstrap(connections), flow.topic, records)
    runs = [flow.start(stack), flow.start(stack)]
    for run in runs:
        assert run.stdout
        run.stdout.read()
        run.wait(timeout=300)
    # One of them may have been interrupted or refused for good; whatever is left, the next run finishes.
    code, output = flow.run(stack)
    assert code == 0, output
    for mode in MODES:
        assert rows(connections, flow.table(mode)) == model.expected(records, mode)

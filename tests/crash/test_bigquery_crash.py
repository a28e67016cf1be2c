"""kill -9 of BigQuery, of a run in step after step, two runs at once, and runs that sleep.

Kills at every boundary are in `test_every_boundary.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from jobs import failpoints
from jobs.destinations.bigquery.kind import KIND
from resources.connections import Connections
from resources.local import stack as local_stack
from tests.kit import model
from tests.kit.bigquery import bigquery_flow, destination, loads, rows, service
from tests.kit.flow import ROOT, Flow
from tests.kit.processes import asleep, end_of
from tests.kit.records import Record, bootstrap, produce, random_changes

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("bigquery")]

# An append that is applied twice, or not at all, shows at once; the modes with a key go through the same steps.
MODES = ["append"]


@dataclass
class Log:
    """A flow whose log grows from test to test, so that each kill also meets what the ones before it left.

    Attributes:
        bad: the part of malformed records. Without any, BigQuery takes the landed files as they are.
    """

    flow: Flow
    records: list[Record] = field(default_factory=list)
    bad: float = 0.02

    def grow(self, connections: Connections) -> None:
        more = random_changes(len(self.records), 100, 30, 2, self.bad)
        produce(bootstrap(connections), self.flow.topic, more)
        self.records.extend(more)

    def check(self, connections: Connections, why: object) -> None:
        for mode in self.flow.modes:
            assert rows(connections, self.flow.table(mode)) == model.expected(self.records, mode), (mode, why)


@pytest.fixture(scope="module")
def log(bigquery: Path, module_topic: Callable[..., str]) -> Log:  # noqa: ARG001 - the service must be there
    # Rows with their offset are not the landed ones: tasks write files of them.
    return Log(bigquery_flow(module_topic(partitions=2), MODES, max_records=60, metadata_columns=["offset"]))


@pytest.fixture(scope="module")
def landed_log(bigquery: Path, module_topic: Callable[..., str]) -> Log:  # noqa: ARG001 - the service must be there
    return Log(bigquery_flow(module_topic(partitions=2), ["append", "upsert_delete"], max_records=60), bad=0)


@pytest.mark.parametrize("point", ["bigquery.begun", "bigquery.loaded"])
def test_killed_run_that_loads_landed_files(point: str, landed_log: Log, stack: Path, connections: Connections) -> None:
    """One load job of all files; the next run finds it by its id and takes over the range in its labels."""
    landed_log.grow(connections)
    code, output = landed_log.flow.run(stack, failpoint=point)
    assert code == -signal.SIGKILL, output
    landed_log.grow(connections)
    code, output = landed_log.flow.run(stack)
    assert code == 0, output
    landed_log.check(connections, point)
    assert all(job.source_uris for job in loads(connections, landed_log.flow))


def test_killed_again_and_again(log: Log, stack: Path, connections: Connections) -> None:
    """One flush, killed one step later each time."""
    log.grow(connections)
    for point in KIND.failpoints:
        code, output = log.flow.run(stack, failpoint=point)
        assert code in (0, -signal.SIGKILL), output
    code, output = log.flow.run(stack)
    assert code == 0, output
    log.check(connections, "again and again")


@pytest.mark.parametrize("point", ["bigquery.begun", "bigquery.staged", "bigquery.loaded", "bigquery.merged"])
def test_run_that_wakes_up_late_changes_nothing(point: str, log: Log, stack: Path, connections: Connections) -> None:
    """It sleeps before each of its effects, while another run with a longer range goes past it, and another after."""
    log.grow(connections)
    sleeper = log.flow.start(stack, failpoint=f"{point}=stop")
    with asleep(sleeper):
        log.grow(connections)
        for _ in range(2):
            code, output = log.flow.run(stack)
            assert code == 0, output
        log.check(connections, point)
    _, output = end_of(sleeper)
    assert "another run has committed" in output, output
    log.check(connections, f"after {point} woke up")


@pytest.mark.parametrize("bad", [0.02, pytest.param(0, marks=pytest.mark.slow)])
def test_two_runs_at_once(bad: float, stack: Path, connections: Connections, topic: Callable[..., str]) -> None:
    log = Log(bigquery_flow(topic(partitions=2), ["append", "upsert_delete"], max_records=60), bad=bad)
    for _ in range(1 if bad else 3):
        log.grow(connections)
        for run in [log.flow.start(stack), log.flow.start(stack)]:
            end_of(run)
        # One of them may have been interrupted or refused for good; whatever is left, the next run finishes.
        code, output = log.flow.run(stack)
        assert code == 0, output
        log.check(connections, "two at once")


@pytest.mark.parametrize("point", ["bigquery.staged", "bigquery.loaded", "bigquery.submitted", "bigquery.merged"])
def test_killed_bigquery(point: str, log: Log, stack: Path, connections: Connections) -> None:
    """The service dies while the run is between two of its steps, and comes back before the run goes on."""
    log.grow(connections)
    run = log.flow.start(stack, failpoint=f"{point}=stop")
    with asleep(run):
        _kill_emulator(stack)
        local_stack.up(stack, ["bigquery"], print)
    end_of(run)
    code, output = log.flow.run(stack)
    assert code == 0, output
    log.check(connections, point)


def test_killed_bigquery_in_the_middle_of_a_merge(log: Log, stack: Path, connections: Connections) -> None:
    """The service dies with jobs running; what became of them is found out when it starts again."""
    for pause in (0.0, 0.05, 0.15):
        log.grow(connections)
        run = log.flow.start(stack, failpoint="bigquery.loaded=stop")
        with asleep(run):
            pass
        time.sleep(pause)
        _kill_emulator(stack)
        local_stack.up(stack, ["bigquery"], print)
        end_of(run)
        code, output = log.flow.run(stack)
        assert code == 0, output
        log.check(connections, pause)


def _kill_emulator(stack: Path) -> None:
    pid = next(one.pid for one in local_stack.status(stack) if one.name == "bigquery")
    assert pid is not None
    process = psutil.Process(pid)
    process.kill()
    psutil.wait_procs([process], timeout=30)


_REPLAY = """
import json, sys
from jobs.pipeline import Pipeline
from jobs.replay.landed import replay_batches
from jobs.spec.pipeline import PipelineSpec
from jobs.connections_file import load_connections
wanted = json.load(sys.stdin)
pipeline = Pipeline(wanted["name"], PipelineSpec.model_validate(wanted["spec"]), load_connections())
(destination,) = pipeline.destinations()
print(replay_batches(pipeline, destination, 1, 2))
"""


def _start_replay(flow: Flow, stack: Path, action: str) -> subprocess.Popen[str]:
    point = f"bigquery.replay-loaded={action}"
    process = subprocess.Popen(
        [sys.executable, "-c", _REPLAY],
        env={**os.environ, "BATCHMERGE_HOME": str(stack), "PYTHONPATH": str(ROOT), failpoints.VARIABLE: point},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin
    process.stdin.write(json.dumps({"name": flow.name, "spec": flow.spec_document}))
    process.stdin.close()
    return process


def test_replay_that_dies_or_wakes_up_late(stack: Path, connections: Connections, topic: Callable[..., str]) -> None:
    """What it has read is old by the time it would write: it must find that a merge has come in between."""
    log = Log(bigquery_flow(topic(partitions=2), ["upsert_delete"], max_records=60))
    log.grow(connections)
    code, output = log.flow.run(stack)
    assert code == 0, output
    assert _start_replay(log.flow, stack, "kill").wait(timeout=300) == -signal.SIGKILL
    sleeper = _start_replay(log.flow, stack, "stop")
    with asleep(sleeper):
        log.grow(connections)
        code, output = log.flow.run(stack)
        assert code == 0, output
    _, output = end_of(sleeper)
    assert "MergedBatches(" in output, output
    assert "another run" in output, output
    log.check(connections, "after the replay")


def test_nothing_is_left_in_the_staging_tables(log: Log, stack: Path, connections: Connections) -> None:
    log.grow(connections)
    code, output = log.flow.run(stack)
    assert code == 0, output
    for mode in MODES:
        row = destination(log.flow, mode, connections).state.read()
        assert row is not None
        left = service(connections).read(f"SELECT COUNT(*) AS n FROM `{row.staging_table}`", {}, "test")
        assert left[0]["n"] == 0
        named = [t for t, _ in service(connections).tables("tests") if t.startswith(f"tests._{log.flow.name}_{mode}")]
        assert named == [row.staging_table]

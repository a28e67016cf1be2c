"""kill -9 at every boundary, two runs at once, and a run that sleeps: the table equals the model every time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import psutil
import pytest

from jobs import failpoints
from resources.connections import Connections
from resources.local import stack as local_stack
from tests.kit import model
from tests.kit.flow import Flow, rows
from tests.kit.records import Record, bootstrap, produce, random_changes

pytestmark = pytest.mark.crash

MODES = ["append", "upsert_delete"]
COORDINATES = {"metadata_columns": ["topic", "partition", "offset"]}
# Tables of a flow by name: of each mode one and three, and one of each; `make test` runs the last.
SHAPES = {f"{count}_{mode}": [mode] * count for mode in ("append", "upsert", "upsert_delete") for count in (1, 3)}
SHAPES["one_of_each"] = ["append", "upsert", "upsert_delete"]


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
def logs(module_topic: Callable[..., str]) -> Callable[[str], Log]:
    @cache
    def make(shape: str) -> Log:
        modes = SHAPES[shape]
        flow = Flow(module_topic(partitions=2), [f"{mode}{n}" for n, mode in enumerate(modes)], max_records=80)
        tables = zip(flow.modes, modes, strict=True)
        flow.overrides["tables"] = [{"kind": "iceberg", "table": flow.table(name), "mode": m} for name, m in tables]
        return Log(flow)

    return make


def turns(shape: str, point: str) -> str:
    """In the merge of which table: with three tables the second, so that one has committed and one has not begun."""
    return f"{point}:2" if len(SHAPES[shape]) > 1 and point in failpoints.MERGE else point


@pytest.mark.parametrize("point", failpoints.ALL)
@pytest.mark.parametrize("shape", SHAPES)
def test_killed_run_is_finished_by_the_next(
    shape: str, point: str, logs: Callable[[str], Log], stack: Path, connections: Connections
) -> None:
    log = logs(shape)
    log.grow(connections)
    code, output = log.flow.run(stack, failpoint=turns(shape, point))
    assert code == -signal.SIGKILL, output
    code, output = log.flow.run(stack)
    assert code == 0, output
    for name, mode in zip(log.flow.modes, SHAPES[shape], strict=True):
        assert rows(connections, log.flow.table(name)) == model.expected(log.records, mode), (point, name)


@pytest.mark.parametrize("victim", ["run", "spark worker"])
def test_killed_while_spark_writes(
    victim: str, stack: Path, connections: Connections, topic: Callable[..., str]
) -> None:
    """The run dies, and its operation goes on in the server; or a Python worker of Spark dies, and the run fails."""
    flow = Flow(topic(partitions=2), ["upsert_delete"], max_records=100_000)
    records = random_changes(5, 60_000, 3_000, 2)
    produce(bootstrap(connections), flow.topic, records)
    catalog, landing = (
        flow.pipeline(connections).intermediate.catalog,
        flow.pipeline(connections).intermediate.identifier,
    )
    run = flow.start(stack)
    while not (found := catalog.load(landing)) or not any(name.startswith("attempt--") for name in found.refs()):
        assert run.poll() is None, "ended before it began to write"
    if victim == "run":
        run.kill()
        run.wait(60)
    while run.poll() is None:
        for worker in spark_workers(stack):
            with suppress(psutil.NoSuchProcess):
                worker.kill()
    assert run.stdout
    output = run.stdout.read()
    assert run.returncode != 1, f"no error of ours: {output}"
    code, output = flow.run(stack)
    assert code == 0, output
    assert rows(connections, flow.table("upsert_delete")) == model.expected(records, "upsert_delete")


def spark_workers(stack: Path) -> list[psutil.Process]:
    """Python processes of the stack's Spark server that read records now."""
    (server,) = (s.pid for s in local_stack.status(stack) if s.name == "spark")
    return [p for p in psutil.Process(server).children(recursive=True) if _is_worker(p)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        return parent is not None and "pyspark" in "".join(parent.cmdline())
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("point", failpoints.LANDING)
def test_killed_direct_landing(point: str, stack: Path, connections: Connections, topic: Callable[..., str]) -> None:
    """Dead letters are published before their batch: neither lost nor doubled."""
    flow = Flow(topic(partitions=2), ["append"], overrides={"intermediate": {"direct": True}})
    records = random_changes(6, 150, 20, 2, bad=0.1)
    produce(bootstrap(connections), flow.topic, records)
    code, output = flow.run(stack, failpoint=point)
    assert code == -signal.SIGKILL, output
    code, output = flow.run(stack)
    assert code == 0, output
    assert rows(connections, flow.table("append")) == model.expected(records, "append")
    letters = flow.pipeline(connections).intermediate.catalog.require(f"landing.{flow.name}_tmp")
    assert len(letters.scan().to_arrow()) == model.bad(records)


@pytest.mark.parametrize("point", ["land.published", "merge.begun", "merge.written", "merge.published"])
def test_killed_replay_from_kafka(point: str, stack: Path, connections: Connections, topic: Callable[..., str]) -> None:
    """It leaves a table that the next one removes; offsets and rows are as ever. So with a reset before its commit."""
    flow = Flow(topic(partitions=2), ["append", "upsert_delete"], table_options=COORDINATES)
    records = random_changes(8, 150, 20, 2)
    produce(bootstrap(connections), flow.topic, records)
    assert flow.run(stack)[0] == 0
    code, output = flow.run(stack, failpoint=point, driver="tests.kit.by_hand")
    assert code == -signal.SIGKILL, output
    more = random_changes(9, 50, 20, 2)
    produce(bootstrap(connections), flow.topic, more)
    for driver in ("tests.kit.advance", "tests.kit.by_hand"):
        code, output = flow.run(stack, driver=driver)
        assert code == 0, output
    for mode in flow.modes:
        assert rows(connections, flow.table(mode)) == model.expected([*records, *more], mode), (point, mode)
    left = flow.pipeline(connections).intermediate.catalog._catalog.list_tables("landing")
    assert not [name for name in left if name[-1].startswith(f"{flow.name}_replay")]


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

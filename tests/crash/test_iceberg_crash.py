"""Iceberg tables under kill -9 while Spark writes: they equal the model.

Kills at every boundary are in `test_every_boundary.py`, sleepers and two runs at once in `test_two_runs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from resources.connections import Connections, IcebergConnection
from resources.local import stack as local_stack
from tests.kit import model
from tests.kit.flow import Flow, rows
from tests.kit.processes import end_of
from tests.kit.records import bootstrap, produce, random_changes

pytestmark = pytest.mark.crash

TRANSIENT = 3


@pytest.mark.parametrize("victim", ["run", "spark worker"])
def test_killed_while_spark_writes(
    victim: str, stack: Path, connections: Connections, topic: Callable[..., str]
) -> None:
    """The run dies, and its operation goes on in the server; or a Python worker of Spark dies, and the run fails."""
    flow = Flow(topic(partitions=2), ["upsert_delete"], max_records=100_000)
    records = random_changes(5, 60_000, 3_000, 2)
    produce(bootstrap(connections), flow.topic, records)
    landing = flow.pipeline(connections).intermediate
    if not str(connections.get("lake", IcebergConnection).warehouse).startswith("file:"):
        pytest.skip("an object shows up when it is whole: that tasks have begun to write cannot be seen")
    run = flow.start(stack)
    while not (found := landing.catalog.load(landing.identifier)) or not _data_files(found.location()):
        assert run.poll() is None, "ended before it began to write"
    if victim == "run":
        run.kill()
        run.wait(60)
    while run.poll() is None:
        for worker in spark_workers(stack):
            with suppress(psutil.NoSuchProcess):
                worker.kill()
    code, output = end_of(run)
    assert code != 1, f"no error of ours: {output}"
    code, output = flow.run(stack)
    if victim == "spark worker" and code == TRANSIENT:
        # It met a worker that had been killed while it waited for work.
        code, output = flow.run(stack)
    assert code == 0, output
    assert rows(connections, flow.table("upsert_delete")) == model.expected(records, "upsert_delete")


def _data_files(location: str) -> list[Path]:
    """What tasks have begun to write."""
    return list(Path(location.removeprefix("file://")).glob("data/*.parquet"))


def spark_workers(stack: Path) -> list[psutil.Process]:
    """Python processes of the stack's Spark server that read records now."""
    (server,) = (s.pid for s in local_stack.status(stack) if s.name == "spark")
    return [p for p in psutil.Process(server).children(recursive=True) if _is_worker(p)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        return parent is not None and "spark_daemon" in " ".join(parent.cmdline())
    except psutil.NoSuchProcess:
        return False

"""A pipeline on a Spark cluster of two workers, which share nothing with the run but the object store: what it merges,
and what is lost when a part of the cluster is killed.

In a target of its own (`make production`), because seven JVMs at once are too many for a small build machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from resources.connections import Connections, SparkConnection
from resources.local import stack as local_stack
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.processes import end_of, started_by
from tests.kit.records import bootstrap, produce, random_changes
from tests.kit.spark_cluster import SparkCluster, spark_cluster
from tests.kit.throttle import throttled
from tests.kit.waiting import until

pytestmark = pytest.mark.production
TRANSIENT = 3
# Percent of the time that workers run, so that something can be killed in the middle.
SLOW = 20


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Services whose lake is in S3."""
    home = tmp_path_factory.mktemp("stack")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHMERGE_HOME", str(home))
        try:
            local_stack.up(home, ["kafka", "spark"], print, "s3")
            yield home
        finally:
            local_stack.down(home, print)


@pytest.fixture
def cluster(
    stack: Path, connections: Connections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkCluster]:
    """What drivers of the engine then use."""
    with spark_cluster(tmp_path / "cluster", 2, hidden=stack) as cluster:
        monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(tmp_path / "connections.yaml"))
        _use(cluster, stack, connections, tmp_path)
        yield cluster


def _use(cluster: SparkCluster, stack: Path, connections: Connections, folder: Path) -> None:
    local = connections.get("spark", SparkConnection).remote
    assert local
    text = (stack / "connections.yaml").read_text().replace(local, cluster.remote)
    (folder / "connections.yaml").write_text(text)


def _python_works(cluster: SparkCluster, worker: int) -> bool:
    """The daemon has forked a process for a task."""
    return len(started_by(cluster.executor(worker), "spark_daemon")) > 1


def test_a_pipeline_runs_on_two_workers(
    cluster: SparkCluster, connections: Connections, topic: Callable[..., str], stack: Path
) -> None:
    flow = Flow(topic(partitions=4), ["upsert_delete"], max_records=120_000)
    records = random_changes(seed=7, count=150_000, keys=5_000, partitions=4)
    produce(bootstrap(connections), flow.topic, records)

    code, output = flow.run(stack)

    assert code == 0, output
    assert rows(connections, flow.table("upsert_delete")) == expected(records, "upsert_delete")
    assert {task.executor for task in cluster.tasks()} == {"0", "1"}


@pytest.mark.parametrize("victim", ["worker", "executor", "driver"])
def test_what_is_killed_in_the_middle_loses_nothing(
    victim: str,
    cluster: SparkCluster,
    connections: Connections,
    topic: Callable[..., str],
    stack: Path,
    tmp_path: Path,
) -> None:
    flow = Flow(topic(partitions=4), ["upsert_delete"], max_records=200_000)
    records = random_changes(seed=8, count=150_000, keys=5_000, partitions=4)
    produce(bootstrap(connections), flow.topic, records)
    with throttled([cluster.executor(n).pid for n in (0, 1)], SLOW):
        run = flow.start(stack)
        until(lambda: run.poll() is not None or _python_works(cluster, 1))
        assert run.poll() is None, "ended before anything could be killed"
        _kill(cluster, victim)
    code, output = end_of(run)
    assert code in (0, TRANSIENT), output
    if victim == "driver":
        assert code == TRANSIENT
        cluster.start_connect()
        _use(cluster, stack, connections, tmp_path)
    code, output = flow.run(stack)
    assert code == 0, output
    assert rows(connections, flow.table("upsert_delete")) == expected(records, "upsert_delete")


def _kill(cluster: SparkCluster, victim: str) -> None:
    if victim == "driver":
        cluster.kill_connect()
    elif victim == "worker":
        cluster.kill_worker()
    else:
        executor: psutil.Process = cluster.executor(1)
        executor.kill()

"""A pipeline on a Spark cluster of two workers, which share nothing with the run but the object store: what it merges,
and what is lost when a part of the cluster is killed.

In a target of its own (`make production`), because seven JVMs at once are too many for a small build machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from resources.connections import Connections, IcebergConnection, SparkConnection
from resources.local import stack as local_stack
from tests.kit import model
from tests.kit.certificates import Authority
from tests.kit.flow import Flow, rows
from tests.kit.kinds import KINDS, runnable, unavailable
from tests.kit.processes import asleep, end_of
from tests.kit.records import bootstrap, produce, random_changes
from tests.kit.spark_cluster import SparkCluster, spark_cluster
from tests.kit.story import COORDINATES, Target, targets
from tests.kit.throttle import throttled
from tests.kit.tls_proxy import tls_proxy
from tests.kit.waiting import until

pytestmark = pytest.mark.production
TRANSIENT = 3
# Percent of the time that workers run, so that something can be killed in the middle: on a busy machine it takes
# seconds until a stage is seen.
SLOW = 8
# The Connect server, which takes the master for lost after a few seconds in place of minutes.
IMPATIENT = """
from resources.spark_connect import server

server._PATIENCE = 5
server.main()
"""
TARGETS = targets("upsert_delete", can="rows_on_workers")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Services whose lake is in S3."""
    home = tmp_path_factory.mktemp("stack")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHMERGE_HOME", str(home))
        try:
            services = [kind.service for kind in KINDS.values() if kind.service and runnable(kind)]
            local_stack.up(home, ["kafka", "spark", *services], print, "s3")
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


def test_a_pipeline_runs_on_two_workers(
    cluster: SparkCluster, connections: Connections, topic: Callable[..., str], stack: Path
) -> None:
    flow = Flow(topic(partitions=4), ["upsert_delete"], max_records=120_000)
    records = random_changes(seed=7, count=150_000, keys=5_000, partitions=4)
    produce(bootstrap(connections), flow.topic, records)

    code, output = flow.run(stack)

    assert code == 0, output
    assert rows(connections, flow.table("upsert_delete")) == model.expected(records, "upsert_delete")
    assert {task.executor for task in cluster.tasks()} == {"0", "1"}
    keys = connections.get("lake", IcebergConnection).spark_properties
    logged = cluster.log_of_events()
    assert [name for name in keys if "key" in name and keys[name] in logged] == []


@pytest.mark.skipif(not runnable(KINDS["clickhouse"]), reason=str(unavailable(KINDS["clickhouse"])))
def test_workers_need_no_certificate_of_clickhouse(
    cluster: SparkCluster, connections: Connections, topic: Callable[..., str], stack: Path, tmp_path: Path
) -> None:
    """The run's file is where they find nothing."""
    flow = _flow(topic(partitions=4), [target for target in TARGETS if target.kind.name == "clickhouse"][:1])
    records = random_changes(seed=10, count=20_000, keys=5_000, partitions=4)
    produce(bootstrap(connections), flow.topic, records)
    (stack / "tls").mkdir()
    authority = Authority(stack / "tls")
    file = tmp_path / "connections.yaml"
    document = yaml.safe_load(file.read_text())
    known = document["connections"]["clickhouse"]
    with tls_proxy(known["endpoints"][0], authority.issue("server")) as endpoint:
        known |= {"endpoints": [endpoint], "secure": True, "ca_file": str(authority.file)}
        file.write_text(yaml.safe_dump(document))
        code, output = flow.run(stack)
    assert code == 0, output
    assert cluster.tasks()
    found = KINDS["clickhouse"].rows(connections, f"tests.{flow.name}_clickhouse")
    rows_now = model.sorted_rows((row["id"], row["name"], row["amount"]) for row in found)
    assert rows_now == model.expected(records, "upsert_delete")


PHASES = ["landing", *(target.kind.name for target in TARGETS)]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("victim", ["worker", "executor", "driver"])
def test_what_is_killed_in_the_middle_loses_nothing(
    victim: str,
    phase: str,
    cluster: SparkCluster,
    connections: Connections,
    topic: Callable[..., str],
    stack: Path,
    tmp_path: Path,
) -> None:
    """In the landing of what tables of all kinds get, or in the merge into one of a kind."""
    tables = [t for t in TARGETS if runnable(t.kind) and phase in ("landing", t.kind.name)]
    if not tables:
        pytest.skip(unavailable(KINDS[phase]) or "")
    flow = _flow(topic(partitions=4), tables)
    records = random_changes(seed=8, count=150_000, keys=5_000, partitions=4)
    produce(bootstrap(connections), flow.topic, records)
    run = flow.start(stack, failpoint="land.begun=stop" if phase == "landing" else "merge.planned=stop")
    with throttled([cluster.executor(n).pid for n in (0, 1)], SLOW):
        with asleep(run):
            before = cluster.stages()
        until(lambda: run.poll() is not None or cluster.stages() > before)
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
    for target in tables:
        found = target.kind.rows(connections, f"tests.{flow.name}_{target.kind.name}")
        rows_now = model.sorted_rows((row["id"], row["name"], row["amount"]) for row in found)
        assert rows_now == model.expected(records, "upsert_delete"), str(target)


def test_a_connect_server_ends_when_its_master_was_started_again(
    cluster: SparkCluster, connections: Connections, topic: Callable[..., str], stack: Path, tmp_path: Path
) -> None:
    """The new master does not know it; it would wait for executors for ever."""
    flow = Flow(topic(partitions=4), ["upsert_delete"], max_records=20_000)
    records = random_changes(seed=9, count=20_000, keys=5_000, partitions=4)
    (program := tmp_path / "impatient.py").write_text(IMPATIENT)
    cluster.kill_connect()
    for part in (records[:10_000], records[10_000:]):
        cluster.start_connect(program)
        _use(cluster, stack, connections, tmp_path)
        produce(bootstrap(connections), flow.topic, part)
        code, output = flow.run(stack)
        assert code == 0, output
        cluster.kill_master()
        cluster.start_master()
        cluster.await_end_of_connect()

    assert rows(connections, flow.table("upsert_delete")) == model.expected(records, "upsert_delete")


def _flow(topic: str, tables: list[Target]) -> Flow:
    flow = Flow(topic, [], max_records=200_000)
    options = {"mode": "upsert_delete", "metadata_columns": COORDINATES}
    flow.overrides["control"] = {"enabled": False}
    flow.overrides["tables"] = [
        {"kind": t.kind.name, "table": f"tests.{flow.name}_{t.kind.name}", **options, **t.kind.bulk} for t in tables
    ]
    return flow


def _kill(cluster: SparkCluster, victim: str) -> None:
    if victim == "driver":
        cluster.kill_connect()
    elif victim == "worker":
        cluster.kill_worker()
    else:
        executor: psutil.Process = cluster.executor(1)
        executor.kill()

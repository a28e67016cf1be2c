"""What a sensor sees of a lease, and cleaning up versions and deletes for good."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.replay.landed import replay_batches
from resources.connections import Connections
from resources.errors import ConfigurationError
from tests.kit import model
from tests.kit.clickhouse import clickhouse_flow, destination, rows, servers
from tests.kit.records import bootstrap, produce, random_changes


@pytest.fixture(autouse=True)
def _clickhouse(clickhouse: Path) -> Path:
    """Before `connections`, which `batchmerge up` writes."""
    return clickhouse


def test_sensor_shows_what_a_dead_run_left_behind(
    stack: Path, connections: Connections, topic: Callable[..., str]
) -> None:
    flow = clickhouse_flow(topic(partitions=2), ["append"])
    table = destination(flow.pipeline(connections), flow.table("append"))
    assert table.leases() == []
    produce(bootstrap(connections), flow.topic, random_changes(1, 60, 30, 2))
    assert flow.run(stack, failpoint="clickhouse.inserted")[0] == -signal.SIGKILL
    (lease,) = table.leases()
    assert lease.left_behind
    assert lease.owner
    assert (lease.batch, lease.committed, lease.shard) == (1, None, 1)
    assert [(p.topic, p.partition, p.phase, p.batch) for p in lease.open_partitions] == [
        (flow.topic, 0, "BEFORE", 1),
        (flow.topic, 1, "BEFORE", 1),
    ]
    assert flow.run(stack)[0] == 0
    (lease,) = table.leases()
    assert not lease.left_behind
    assert not lease.owner
    assert lease.open_partitions == ()
    assert lease.committed
    assert lease.committed.batch_number == 1
    assert {p.last + 1 for p in lease.partitions} == set(lease.committed.offsets.values())


def test_clean_up_removes_versions_and_deletes(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["upsert_delete", "append"], max_records=100)
    records = random_changes(2, 300, 20, 1)
    produce(bootstrap(connections), flow.topic, records)
    pipeline = flow.pipeline(connections, spark)
    last = [landed.number for landed in protocol.land(pipeline, 0)][-1]
    for each in pipeline.destinations():
        protocol.merge(pipeline, each)
    table = destination(pipeline, flow.table("upsert_delete"))
    wanted = model.expected(records, "upsert_delete")
    table.clean_up()
    table.clean_up(deletes=True)
    (server,) = servers(connections)
    assert server.rows(f"SELECT count() AS n FROM {table.table.table}")[0]["n"] == len(wanted)
    assert rows(connections, table.table.table) == wanted
    replay_batches(pipeline, table, 1, last)
    assert rows(connections, table.table.table) == wanted
    with pytest.raises(ConfigurationError, match="nothing to clean up"):
        destination(pipeline, flow.table("append")).clean_up()

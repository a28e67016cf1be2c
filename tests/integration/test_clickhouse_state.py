"""What a sensor sees of a lease."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.replay.landed import replay_batches
from resources.connections import Connections
from tests.kit.clickhouse import clickhouse_flow, destination
from tests.kit.records import bootstrap, produce, random_changes

pytestmark = pytest.mark.usefixtures("clickhouse")


@pytest.mark.slow
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


def test_a_replay_finishes_what_a_dead_run_left_behind(
    stack: Path, connections: Connections, topic: Callable[..., str]
) -> None:
    flow = clickhouse_flow(topic(partitions=2), ["upsert_delete"])
    servers, changes = bootstrap(connections), random_changes(2, 60, 30, 2)
    produce(servers, flow.topic, changes[:30])
    assert flow.run(stack)[0] == 0
    produce(servers, flow.topic, changes[30:])
    assert flow.run(stack, failpoint="clickhouse.before")[0] == -signal.SIGKILL
    pipeline = flow.pipeline(connections)
    table = pipeline.destination(flow.table("upsert_delete"))
    assert (replayed := replay_batches(pipeline, table, 1, 9))
    assert [batch.number for batch in replayed.batches] == [1, 2]
    (lease,) = table.leases()
    assert not lease.left_behind
    assert lease.committed
    assert lease.committed.batch_number == 2

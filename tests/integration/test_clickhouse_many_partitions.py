"""Batches of few records over thousands of topic-partitions, into the real server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from jobs import protocol
from jobs.destinations.clickhouse.chunk_size import landed_bytes
from jobs.offsets import TopicPartition, total
from jobs.spark.sessions import OneSession
from resources.connections import Connections
from tests.benchmarks._landed import land_directly
from tests.benchmarks._workload import pipeline as new_pipeline
from tests.kit.clickhouse import destination, servers

_PLACES = [TopicPartition(f"a-topic-with-a-name-of-fifty-characters-{n % 500:010}", n // 500) for n in range(5000)]


def test_5000_topic_partitions_with_long_names(clickhouse: Path, connections: Connections, spark: SparkSession) -> None:
    assert clickhouse.exists()
    tables = [{"kind": "clickhouse", "mode": "append"}]
    p = replace(new_pipeline(connections, "none", tables), sessions=OneSession(lambda: spark))
    land_directly(p, 2, len(_PLACES), places=_PLACES)
    table, (server,) = p.destinations()[0], servers(connections)
    name = table.table.table

    def stored() -> list[dict[str, object]]:
        return server.rows(f"SELECT count() AS n, uniqExact(id) AS ids, max(id) AS last FROM {name}")

    table.prepare()
    wanted = protocol.pending(p, table)
    assert sum(total(b.batch.ranges) for b in wanted.batches) == 2 * len(_PLACES)
    assert landed_bytes(wanted.batches, p.intermediate) > 0
    merged = table.merge(p.merge_context(table), wanted.committed, wanted.batches)
    assert merged
    assert merged.counts.inserted == 2 * len(_PLACES)
    assert stored() == [{"n": 10_000, "ids": 10_000, "last": 9_999}]
    (lease,) = destination(p, name).leases()
    assert len(lease.partitions) == len(_PLACES)
    assert {row.phase for row in lease.partitions} == {"AFTER"}

    server.execute(f"ALTER TABLE {name} DELETE WHERE id IN (17, 9003)", settings={"mutations_sync": 1})
    committed = table.committed()
    assert committed
    again = table.replay(p.merge_context(table), committed, wanted.batches)
    assert again.counts.changes == 2 * len(_PLACES)
    assert stored() == [{"n": 10_000, "ids": 10_000, "last": 9_999}]

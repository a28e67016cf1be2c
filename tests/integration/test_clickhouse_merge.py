"""Batches into real ClickHouse tables equal an independent model, whatever happened before."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.destinations.clickhouse.insertion import Only
from jobs.destinations.clickhouse.steps import cut
from jobs.replay.landed import replay_batches
from resources.connections import Connections
from resources.errors import ConfigurationError, Interrupted, TableReplaced
from tests.kit import model
from tests.kit.clickhouse import clickhouse_flow, destination, rows, servers
from tests.kit.records import Record, bootstrap, produce, random_changes

MODES = ["append", "upsert", "upsert_delete"]


@pytest.fixture(autouse=True)
def _clickhouse(clickhouse: Path) -> Path:
    """Before `connections`, which `batchmerge up` writes."""
    return clickhouse


def test_tables_equal_the_model_over_many_batches(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(partitions=3), MODES, max_records=150)
    records = []
    for seed in range(2):
        more = random_changes(seed, 200, 40, 3)
        produce(bootstrap(connections), flow.topic, more)
        records += more
        pipeline = flow.pipeline(connections, spark)
        for _ in protocol.land(pipeline, 0):
            if seed == 0:
                for table in pipeline.destinations():
                    protocol.merge(pipeline, table)
        # Later rounds: several landed batches in one merge.
        for table in pipeline.destinations():
            protocol.merge(pipeline, table)
            assert protocol.merge(pipeline, table) is None
    for mode in MODES:
        assert rows(connections, flow.table(mode)) == model.expected(records, mode), mode
    landed = pipeline.intermediate.committed()
    assert landed
    for table in pipeline.destinations():
        assert table.committed() == landed


def test_replay_leaves_tables_as_they_were_and_mends_lost_rows(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(partitions=2), MODES, max_records=100)
    records = random_changes(5, 300, 25, 2)
    produce(bootstrap(connections), flow.topic, records)
    pipeline = flow.pipeline(connections, spark)
    last = [landed.number for landed in protocol.land(pipeline, 0)][-1]
    for table in pipeline.destinations():
        protocol.merge(pipeline, table)
    dice = random.Random(1)
    for _ in range(2):
        first = dice.randint(1, last)
        for table in pipeline.destinations():
            replay_batches(pipeline, table, first, dice.randint(first, last))
    for mode in MODES:
        assert rows(connections, flow.table(mode)) == model.expected(records, mode), mode

    (server,) = servers(connections)
    for mode in MODES:
        server.execute(f"DELETE FROM {flow.table(mode)} WHERE id % 3 = 0", settings={"mutations_sync": 1})
        assert rows(connections, flow.table(mode)) != model.expected(records, mode)
        replay_batches(pipeline, pipeline.destination(flow.table(mode)), 1, last)
        assert rows(connections, flow.table(mode)) == model.expected(records, mode), mode


def test_named_order_wins_over_arrival(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    columns = {"id": "long", "name": "string", "amount": "double", "at": "timestamp", "op": "string"}
    flow = clickhouse_flow(topic(), ["upsert_delete"], max_records=3)
    flow.overrides["source"] = {
        "topics": [flow.topic],
        "key": {"format": "json", "columns": {"id": "long"}},
        "value": {"format": "json", "columns": columns},
    }
    flow.overrides["changes"] = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "at"}

    def change(key: int, name: str, year: int, op: str = "u") -> Record:
        return Record(0, key, {"id": key, "name": name, "amount": 1, "at": f"{year}-01-01T00:00:00Z", "op": op})

    late_old = [change(1, "new", 2020), change(1, "old", 1960), change(2, "a", 1950)]
    deleted = [change(2, "gone", 1955, "d"), change(3, "x", 2000), change(3, "y", 2000)]
    revived = [change(2, "older than its delete", 1952), change(1, "older", 2019), change(4, "z", 1901)]
    pipeline = flow.pipeline(connections, spark)
    for batch in (late_old, deleted, revived):
        produce(bootstrap(connections), flow.topic, batch)
        list(protocol.land(pipeline, 1))
        protocol.merge(pipeline, pipeline.destinations()[0])
    assert rows(connections, flow.table("upsert_delete")) == [(1, "new", 1.0), (3, "y", 1.0), (4, "z", 1.0)]
    replay_batches(pipeline, pipeline.destinations()[0], 1, 1)
    assert rows(connections, flow.table("upsert_delete")) == [(1, "new", 1.0), (3, "y", 1.0), (4, "z", 1.0)]


def test_partitioned_table_and_materialized_view_get_each_row_once(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(partitions=2), ["append"], partition_by="id % 7")
    produce(bootstrap(connections), flow.topic, random_changes(8, 100, 30, 2))
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    (table,) = pipeline.destinations()
    table.prepare()
    (server,) = servers(connections)
    name = flow.table("append")
    server.execute(f"CREATE TABLE {name}_sums (id Int64, n UInt64) ENGINE = SummingMergeTree ORDER BY id")
    counting = f"SELECT id, count() AS n FROM {name} GROUP BY id"
    server.execute(f"CREATE MATERIALIZED VIEW {name}_mv TO {name}_sums AS {counting}")
    with pytest.raises(ConfigurationError, match="remembers 0 parts for deduplication, and a batch needs 400"):
        protocol.merge(pipeline, table)
    server.execute(f"ALTER TABLE {name}_sums MODIFY SETTING non_replicated_deduplication_window = 5000")

    more = random_changes(8, 100, 30, 2)
    shard = destination(pipeline, name).shards[0]
    context = pipeline.merge_context(table)
    (step,) = cut(pipeline.intermediate.landed().batches, shard.table.chunk_rows, most_chunks=99)
    present = shard._require_table()
    advance = shard._advance(context, present)
    held = advance.take(None, step)
    for _ in range(2):
        # The second time as after a crash: neither table changes.
        shard._insert(context, present, held, step, Only.ALL)
        assert rows(connections, name) == model.expected(more, "append")
        counted = server.rows(f"SELECT sum(n) AS n FROM {name}_sums")[0]["n"]
        assert counted == len(model.expected(more, "append"))
    advance._commit(held, step, None)
    assert protocol.merge(pipeline, table) is None


def test_window_that_is_too_small_is_refused_with_the_number_needed(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["append"], settings={"non_replicated_deduplication_window": 4})
    produce(bootstrap(connections), flow.topic, random_changes(9, 120, 30, 1, bad=0))
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    with pytest.raises(ConfigurationError, match=r"remembers 4 parts .* a batch needs 6"):
        protocol.merge(pipeline, pipeline.destinations()[0])
    assert pipeline.destinations()[0].committed() is None


def test_table_that_was_dropped_is_noticed(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["upsert"])
    produce(bootstrap(connections), flow.topic, random_changes(9, 20, 30, 1))
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    protocol.merge(pipeline, pipeline.destinations()[0])
    (server,) = servers(connections)
    statement = server.rows(f"SHOW CREATE TABLE {flow.table('upsert')}")[0]["statement"]
    server.execute(f"DROP TABLE {flow.table('upsert')} SYNC")
    with pytest.raises(TableReplaced, match="is gone"):
        protocol.merge(pipeline, pipeline.destinations()[0])
    server.execute(statement)
    with pytest.raises(TableReplaced, match="dropped and recreated"):
        protocol.merge(pipeline, pipeline.destinations()[0])


def test_run_that_lost_its_lease_cannot_insert(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["append"])
    produce(bootstrap(connections), flow.topic, random_changes(9, 20, 30, 1))
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    (table,) = pipeline.destinations()
    table.prepare()
    shard = destination(pipeline, flow.table("append")).shards[0]
    work = pipeline.merge_context(table)
    (step,) = cut(pipeline.intermediate.landed().batches, shard.table.chunk_rows, most_chunks=99)
    present = shard._require_table()
    advance = shard._advance(work, present)
    old = advance.take(None, step)
    advance.take(old, None)
    with pytest.raises(Interrupted):
        shard._insert(work, present, old, step, Only.ALL)
    assert rows(connections, flow.table("append")) == []
    protocol.merge(pipeline, table)
    assert len(rows(connections, flow.table("append"))) > 0


def test_second_pipeline_of_a_table_is_refused(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["append"])
    produce(bootstrap(connections), flow.topic, random_changes(9, 20, 30, 1))
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    protocol.merge(pipeline, pipeline.destinations()[0])
    other = clickhouse_flow(flow.topic, ["append"])
    other.overrides["tables"][0]["table"] = flow.table("append")  # type: ignore[index]
    with pytest.raises(ConfigurationError, match=f"kept by pipeline {flow.name}"):
        other.pipeline(connections).destinations()[0].prepare()

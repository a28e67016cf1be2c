"""Batches into real ClickHouse tables equal an independent model, whatever happened before."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.dead_letters.retry import retry
from jobs.destinations.clickhouse.insert_task import Only
from jobs.destinations.clickhouse.merge import advance_of
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.clickhouse.step_inserts import StepInserts
from jobs.destinations.clickhouse.steps import cut
from jobs.destinations.stages import Stages
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.replay.landed import replay_batches
from jobs.verify.reconciliation import reconcile
from resources.connections import ClickHouseConnection, Connections
from resources.errors import ConfigurationError, Interrupted, SchemaRefused, TerminalError
from tests.kit import model
from tests.kit.clickhouse import clickhouse_flow, destination, rows, servers
from tests.kit.flow import Flow
from tests.kit.interrupting import dying_at
from tests.kit.kinds import KINDS
from tests.kit.network import with_connection
from tests.kit.records import bootstrap, produce, put, random_changes
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("clickhouse")


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
    (step,) = cut(pipeline.intermediate.landed().batches, shard.table.chunk_rows, most_chunks=99)
    inserts = StepInserts(shard, pipeline.merge_context(table), shard.require_table())
    advance = advance_of(shard, inserts, Stages())
    held = advance.take(advance.store.lease(), step)
    for _ in range(2):
        # The second time as after a crash: neither table changes.
        inserts.of_step(held, step, Only.ALL)
        assert rows(connections, name) == model.expected(more, "append")
        counted = server.rows(f"SELECT sum(n) AS n FROM {name}_sums")[0]["n"]
        assert counted == len(model.expected(more, "append"))
    advance._commit(held, step, None)
    assert protocol.merge(pipeline, table) is None


def test_rows_that_an_engine_has_joined_do_not_come_back(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["append"], max_records=2, engine="ReplacingMergeTree")
    produce(bootstrap(connections), flow.topic, [put(1, "old"), put(2, "b"), put(1, "new"), put(3, "c")])
    pipeline = flow.pipeline(connections, spark)
    assert len(list(protocol.land(pipeline, 0))) == 2
    (table,) = pipeline.destinations()
    assert protocol.merge(pipeline, table)
    (server,), name = servers(connections), flow.table("append")
    server.execute(f"OPTIMIZE TABLE {name} FINAL")
    kept = [(1, "new", 1.0), (2, "b", 1.0), (3, "c", 1.0)]
    assert rows(connections, name) == kept
    verdict = reconcile(pipeline, table, 0)
    assert (verdict.wrong, verdict.compared) == ([], 3)
    assert verdict.left_out == ["rows that are missing: its engine, ReplacingMergeTree, joins rows"]
    for again in (lambda: replay_batches(pipeline, table, 1, 2), lambda: retry(pipeline)):
        with pytest.raises(ConfigurationError, match=r"its engine, ReplacingMergeTree, joins rows.* Fix: .*upsert"):
            again()
    KINDS["clickhouse"].lose_state(connections, table)
    with pytest.raises(ConfigurationError, match=r"its engine, ReplacingMergeTree, joins rows"):
        protocol.merge(pipeline, pipeline.destinations()[0])
    assert rows(connections, name) == kept


def edited(flow: Flow, **options: object) -> Flow:
    """The pipeline with other options of its only table."""
    return replace(flow, table_options={**flow.table_options, **options})


def test_step_in_an_engine_that_joins_rows_is_continued_with_its_own_chunks(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["append"], engine="SummingMergeTree(amount)", order_by=["id"], chunk_rows=4)
    produce(bootstrap(connections), flow.topic, [put(key, "a") for key in (1, 1, 2, 1, 2)])
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    with dying_at("clickhouse.inserted"):
        protocol.merge(pipeline, pipeline.destinations()[0])
    (server,), name = servers(connections), flow.table("append")
    server.execute(f"OPTIMIZE TABLE {name} FINAL")
    pipeline = edited(flow, chunk_rows=1).pipeline(connections, spark)
    assert protocol.merge(pipeline, pipeline.destinations()[0])
    server.execute(f"OPTIMIZE TABLE {name} FINAL")
    assert [(row[0], row[2]) for row in rows(connections, name)] == [(1, 3.0), (2, 2.0)]


def test_records_that_were_read_again_are_no_rows_of_an_engine_that_joins_rows(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["append"])
    produce(bootstrap(connections), flow.topic, [put(1, "old"), put(2, "b"), put(1, "new")])
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    assert reread_from_kafka(pipeline, from_offsets({TopicPartition(flow.topic, 0): 0}))
    name = f"{flow.table('append')}_joined"
    pipeline = edited(flow, table=name, engine="ReplacingMergeTree").pipeline(connections, spark)
    with pytest.raises(ConfigurationError, match=r"joins rows.* Fix: fill a new table: .* a pipeline of another name"):
        protocol.merge(pipeline, pipeline.destinations()[0])
    assert rows(connections, name) == [(1, "new", 1.0), (2, "b", 1.0)]


def test_replay_of_a_table_that_stores_no_rows_is_refused(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    """Its views would get all rows again."""
    flow = clickhouse_flow(topic(), ["append"], engine="Null")
    produce(bootstrap(connections), flow.topic, [put(n) for n in range(5)])
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    (table,), (server,), name = pipeline.destinations(), servers(connections), flow.table("append")
    server.execute(f"CREATE DATABASE IF NOT EXISTS {name.split('.')[0]}")
    columns = "id Int64, name Nullable(String), amount Nullable(Float64), op Nullable(String)"
    places = "_topic Nullable(String), _partition Nullable(Int32), _offset Nullable(Int64)"
    server.execute(f"CREATE TABLE {name} ({columns}, {places}) ENGINE = Null")
    counted = "ENGINE = SummingMergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 1000"
    server.execute(f"CREATE TABLE {name}_sums (id Int64, n UInt64) {counted}")
    server.execute(
        f"CREATE MATERIALIZED VIEW {name}_mv TO {name}_sums AS SELECT id, count() AS n FROM {name} GROUP BY id"
    )
    with dying_at("clickhouse.inserted"):
        protocol.merge(pipeline, table)
    assert protocol.merge(pipeline, table)
    for again in (lambda: replay_batches(pipeline, table, 1, 1), lambda: retry(pipeline)):
        with pytest.raises(ConfigurationError, match="its engine, Null, stores no rows"):
            again()
    assert server.rows(f"SELECT sum(n) AS n FROM {name}_sums") == [{"n": 5}]
    verdict = reconcile(pipeline, table, 0)
    assert (verdict.wrong, verdict.left_out) == ([], ["rows that are missing: its engine, Null, stores no rows"])


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


def test_plan_refuses_a_table_that_remembers_no_insert(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    """ClickHouse's default, so that of every table that somebody else made: else only the first run would say so."""
    flow = clickhouse_flow(topic(), ["append"], settings={"non_replicated_deduplication_window": 0})
    (table,) = flow.pipeline(connections, spark).destinations()
    table.prepare()
    with pytest.raises(ConfigurationError, match=r"remembers 0 parts .* = 1000 \(at least 2\)"):
        table.prepare(dry_run=True)


def test_seconds_of_inserts_are_apart_from_those_of_the_state(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["upsert"])
    produce(bootstrap(connections), flow.topic, random_changes(9, 20, 30, 1, bad=0))
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    (table,) = pipeline.destinations()
    for done in (protocol.merge(pipeline, table), replay_batches(pipeline, table, 1, 1)):
        assert done
        assert done.merged.seconds.keys() == {"insert", "state"}
        assert min(done.merged.seconds.values()) > 0


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
    (step,) = cut(pipeline.intermediate.landed().batches, shard.table.chunk_rows, most_chunks=99)
    inserts = StepInserts(shard, pipeline.merge_context(table), shard.require_table())
    advance = advance_of(shard, inserts, Stages())
    old = advance.take(None, step)
    advance.take(old, None)
    with pytest.raises(Interrupted):
        inserts.of_step(old, step, Only.ALL)
    assert rows(connections, flow.table("append")) == []
    protocol.merge(pipeline, table)
    assert len(rows(connections, flow.table("append"))) > 0


def test_taking_over_stops_older_owners_only(connections: Connections, topic: Callable[..., str]) -> None:
    """A run that was taken over itself before it came to it leaves the newer one alone."""
    flow = clickhouse_flow(topic(), ["append"])
    shard, (server,) = destination(flow.pipeline(connections), flow.table("append")).shards[0], servers(connections)
    ids = [f"{shard.query_prefix}{epoch}-x" for epoch in (9, 10, 11)]

    def running() -> list[str]:
        found = server.rows("SELECT query_id FROM system.processes WHERE query_id IN {ids:Array(String)}", {"ids": ids})
        return sorted(row["query_id"] for row in found)

    def sleep(query: str) -> None:
        with suppress(Interrupted):
            sleeping = {"query_id": query, "max_block_size": 1}
            server.execute("SELECT sleepEachRow(1) FROM numbers(600)", settings=sleeping)

    with ThreadPoolExecutor(3) as threads:
        for query in ids:
            threads.submit(sleep, query)
        try:
            until(lambda: len(running()) == 3)
            shard.stop_older(Lease(epoch=10))
            assert running() == sorted(ids[1:])
        finally:
            server.execute("KILL QUERY WHERE query_id IN {ids:Array(String)} SYNC", {"ids": ids})


@pytest.mark.parametrize(
    ("engine", "order", "refused"),
    [
        ("ReplicatedReplacingMergeTree('/tests/{uuid}', 'r1', _version, _deleted)", "id", None),
        ("ReplacingMergeTree(_version, _deleted)", "(id, name)", r"it is sorted by id, name in place of id"),
        ("MergeTree", "id", r"its engine is MergeTree in place of ReplacingMergeTree\(_version, _deleted\)"),
        ("ReplacingMergeTree(amount)", "id", r"its engine is ReplacingMergeTree\(amount\) in place of"),
    ],
)
def test_table_of_others_that_does_not_keep_the_newest_row_is_refused(
    connections: Connections, topic: Callable[..., str], engine: str, order: str, refused: str | None
) -> None:
    flow = clickhouse_flow(topic(), ["upsert_delete"])
    name, (server,) = flow.table("upsert_delete"), servers(connections)
    engine = engine.replace("{uuid}", flow.name)
    columns = "id Int64, name String, amount UInt64, _version UInt64, _deleted UInt8"
    server.execute(f"CREATE DATABASE IF NOT EXISTS {name.split('.')[0]}")
    server.execute(f"CREATE TABLE {name} ({columns}) ENGINE = {engine} ORDER BY {order}")
    flow.table_options["column_types"] = {"name": "String", "amount": "UInt64"}
    (table,) = flow.pipeline(connections).destinations()
    if refused is None:
        table.prepare()
        return
    with pytest.raises(SchemaRefused, match=refused):
        table.prepare()


@pytest.mark.parametrize("way", ["raised", "smaller"])
def test_insert_into_too_many_partitions_goes_on_by_the_remedy(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, way: str
) -> None:
    flow = clickhouse_flow(topic(), ["append"], partition_by="id")
    records = random_changes(8, 220, 100_000, 1, bad=0)
    produce(bootstrap(connections), flow.topic, records)
    flow.table_options["chunk_rows"] = 250
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    with pytest.raises(ConfigurationError, match=r"more table partitions than ClickHouse allows") as refused:
        protocol.merge(pipeline, pipeline.destinations()[0])
    assert "make chunk_rows smaller, or raise max_partitions_per_insert_block" in refused.value.remedy
    if way == "raised":
        known = connections.get("clickhouse", ClickHouseConnection)
        raised = known.model_copy(update={"settings": {"max_partitions_per_insert_block": "220"}})
        connections = with_connection(connections, "clickhouse", raised)
    else:
        flow.table_options["chunk_rows"] = 60
    pipeline = flow.pipeline(connections, spark)
    protocol.merge(pipeline, pipeline.destinations()[0])
    assert rows(connections, flow.table("append")) == model.expected(records, "append")


def test_the_remedy_leads_to_the_whole_message(connections: Connections) -> None:
    """Which may hold values, so our error does not repeat it. Not every server has a query log."""
    (server,) = servers(connections)
    with pytest.raises(TerminalError, match="code 46 UNKNOWN_FUNCTION") as refused:
        server.rows("SELECT secret_of_a_record(1)")
    assert "secret" not in str(refused.value)
    (question,) = re.findall("`(SELECT .+)`", refused.value.remedy)
    (found,) = server.rows(question)
    assert "secret_of_a_record" in str(found["last_error_message"])

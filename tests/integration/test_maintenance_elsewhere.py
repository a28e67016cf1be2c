"""Maintenance of tables that are not in Iceberg: the tables hold the same, and the pipeline goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.connections_file import load_connections
from jobs.maintenance.report import Done
from jobs.maintenance.run import maintain_table
from tests.kit import bigquery as bq
from tests.kit import clickhouse as ch
from tests.kit import model
from tests.kit.engine import Engine
from tests.kit.records import bootstrap, produce, random_changes

MODES = ["append", "upsert_delete"]


def maintained(engine: Engine) -> list[Done]:
    done = [one for d in engine.pipeline.destinations() for one in maintain_table(engine.pipeline, d)]
    assert [str(one) for one in done if one.problem] == []
    return done


def test_clickhouse_rows_of_old_versions_and_deletes_go(
    clickhouse: Path, spark: SparkSession, topic: Callable[..., str]
) -> None:
    connections = load_connections(clickhouse / "connections.yaml")
    flow = ch.clickhouse_flow(topic(), MODES)
    flow.overrides["maintenance"] = {"clean_up": {"deletes": True}}
    one, records = Engine(flow, connections, spark), random_changes(4, 60, 9, 1)
    produce(bootstrap(connections), flow.topic, records)
    one.advance()
    table = ch.destination(one.pipeline, flow.table("upsert_delete"))
    (server,), store = ch.servers(connections), table.shards[0].store
    idle = store.lease()
    assert idle
    # Of a half-done batch the rows may still come that are older than its deletes.
    begun = store.swap(idle, replace(idle, batch=2, commit_id="c"))
    maintained(one)
    assert server.rows(f"SELECT count() AS n FROM {flow.table('upsert_delete')} WHERE _deleted")[0]["n"]
    store.swap(begun, idle)
    assert [dict(d.counts) for d in maintained(one)] == [{}, {"partitions rewritten": 1}]
    assert (lease := store.lease())
    assert lease.owner == ""
    assert lease.epoch > idle.epoch
    wanted = model.expected(records, "upsert_delete")
    assert server.rows(f"SELECT count() AS n FROM {flow.table('upsert_delete')}")[0]["n"] == len(wanted)
    one.replay("upsert_delete", 1, 1)
    assert ch.rows(connections, flow.table("upsert_delete")) == wanted
    more = random_changes(5, 30, 9, 1)
    produce(bootstrap(connections), flow.topic, more)
    one.advance()
    for mode in MODES:
        assert ch.rows(connections, flow.table(mode)) == model.expected([*records, *more], mode), mode


def test_bigquery_staging_table_is_emptied(bigquery: Path, spark: SparkSession, topic: Callable[..., str]) -> None:
    connections = load_connections(bigquery / "connections.yaml")
    flow = bq.bigquery_flow(topic(), ["upsert_delete"])
    one, records = Engine(flow, connections, spark), random_changes(4, 60, 9, 1)
    assert maintained(one) == [], "nothing to look after before the first batch"
    produce(bootstrap(connections), flow.topic, records)
    one.advance()
    row = bq.destination(flow, "upsert_delete", connections).state.read()
    assert row
    left = f"INSERT INTO `{row.staging_table}` (`batchNumber`, `i`) VALUES (1, 1)"
    bq.service(connections).change(left, {}, "test")
    (done,) = maintained(one)
    assert dict(done.counts) == {"staging tables dropped": 0}
    assert bq.select(connections, f"SELECT COUNT(*) AS n FROM `{row.staging_table}`") == [{"n": 0}]
    assert bq.rows(connections, flow.table("upsert_delete")) == model.expected(records, "upsert_delete")

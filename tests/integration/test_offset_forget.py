"""`batchmerge offsets forget`: a table that was dropped on purpose is filled again, and no other one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from jobs import protocol
from resources.connections import Connections
from resources.errors import TableReplaced
from sql import render
from tests.kit import bigquery as in_bigquery
from tests.kit import clickhouse as in_clickhouse
from tests.kit import model
from tests.kit.command import Command
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.kinds import READ
from tests.kit.records import bootstrap, produce, random_changes


def test_dropped_tables_are_filled_anew_when_their_state_is_forgotten(
    clickhouse: Path,
    bigquery: Path,
    connections: Connections,
    topic: Callable[..., str],
    spark: SparkSession,
    batchmerge: Command,
) -> None:
    del clickhouse, bigquery
    flow = Flow(topic(partitions=2), ["upsert_delete"])
    table = flow.table("upsert_delete")
    flow.overrides["tables"] = [{"kind": kind, "table": table, "mode": "upsert_delete"} for kind in READ]
    engine = Engine(flow, connections, spark)
    records = random_changes(1, 120, 20, 2, bad=0)
    produce(bootstrap(connections), flow.topic, records[:60])
    advance(engine)
    expected = model.expected(records[:60], "upsert_delete")
    assert {kind: read(connections, table) for kind, read in READ.items()} == dict.fromkeys(READ, expected)

    code, said = batchmerge(engine, "offsets", "forget", "", table, "--yes")
    assert (code, "'clickhouse" in said) == (2, True), "the name alone does not tell which"
    for kind in READ:
        code, said = batchmerge(engine, "offsets", "forget", "", f"{kind} {table}", "--yes")
        assert (code, "drop the table" in said) == (2, True), said
    drop(connections, table)
    states = [committed(engine, kind) for kind in ("clickhouse", "bigquery")]
    assert all("offsets forget" in said for said in states), states

    for kind in READ:
        code, said = batchmerge(engine, "offsets", "forget", "", f"{kind} {table}")
        assert (code, "60 changes" in said, "Nothing was changed" in said) == (0, True, True), said
        code, said = batchmerge(engine, "offsets", "forget", "", f"{kind} {table}", "--yes")
        assert (code, "Done" in said) == (0, kind != "iceberg"), said
    produce(bootstrap(connections), flow.topic, records[60:])
    advance(engine)
    expected = model.expected(records, "upsert_delete")
    assert {kind: read(connections, table) for kind, read in READ.items()} == dict.fromkeys(READ, expected)


def advance(engine: Engine) -> None:
    engine.land()
    for destination in engine.pipeline.destinations():
        protocol.merge(engine.pipeline, destination)


def drop(connections: Connections, table: str) -> None:
    assert catalog(connections).drop(table)
    (server,) = in_clickhouse.servers(connections)
    server.execute(render("clickhouse", "table_drop", table=tuple(table.split("."))))
    in_bigquery.service(connections).delete_table(table)


def committed(engine: Engine, kind: str) -> str:
    """What the table says instead of its state."""
    try:
        (found,) = [d for d in engine.pipeline.destinations() if d.name.startswith(kind)]
        return str(found.committed())
    except TableReplaced as problem:
        return str(problem)

"""With a named order, a replay brings back no row that a newer delete has removed, whatever kind of table it is in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from resources.connections import Connections
from tests.kit import bigquery as in_bigquery
from tests.kit import clickhouse as in_clickhouse
from tests.kit.command import Command
from tests.kit.engine import Engine
from tests.kit.flow import Flow, rows
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce

KINDS = ["iceberg", "clickhouse", "bigquery"]


def change(key: int, op: str, version: int) -> Record:
    return Record(0, key, {"id": key, "name": f"v{version}", "amount": 1.0, "op": op, "version": version})


def test_late_change_stays_behind_the_delete(
    clickhouse: Path,
    bigquery: Path,
    connections: Connections,
    topic: Callable[..., str],
    spark: SparkSession,
    batchmerge: Command,
) -> None:
    del clickhouse, bigquery
    flow = Flow(topic(), KINDS)
    flow.overrides["tables"] = [{"kind": k, "table": flow.table(k), "mode": "upsert_delete"} for k in KINDS]
    flow.overrides["source"] = {
        "topics": [flow.topic],
        "key": {"columns": KEY},
        "value": {"columns": {**COLUMNS, "version": "long"}},
    }
    flow.overrides["changes"] = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "version"}
    engine = Engine(flow, connections, spark)
    read = {"iceberg": rows, "clickhouse": in_clickhouse.rows, "bigquery": in_bigquery.rows}
    for chapter in ([change(1, "c", 5), change(2, "c", 1)], [change(1, "d", 10)], [change(1, "u", 7)]):
        produce(bootstrap(connections), flow.topic, chapter)
        engine.advance()
    expected = dict.fromkeys(KINDS, ((2, "v1", 1.0),))
    assert {k: tuple(read[k](connections, flow.table(k))) for k in KINDS} == expected
    for arguments in (["--batches", "3"], ["--kafka-offsets", f"{flow.topic}-0=3"]):
        code, said = batchmerge(engine, "replay", "", *arguments)
        assert code == 0, said
        assert {k: tuple(read[k](connections, flow.table(k))) for k in KINDS} == expected, arguments

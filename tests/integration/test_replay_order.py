"""With a named order, a replay brings back no row that a newer delete has removed, whatever kind of table it is in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resources.connections import Connections
from tests.kit.command import Command
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.kinds import READ
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce

KINDS = list(READ)


def change(key: int, op: str, version: int) -> Record:
    return Record(0, key, {"id": key, "name": f"v{version}", "amount": 1.0, "op": op, "version": version})


@pytest.mark.slow
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
    for chapter in ([change(1, "c", 5), change(2, "c", 1)], [change(1, "d", 10)], [change(1, "u", 7)]):
        produce(bootstrap(connections), flow.topic, chapter)
        engine.advance()
    expected = dict.fromkeys(KINDS, ((2, "v1", 1.0),))
    assert {k: tuple(READ[k](connections, flow.table(k))) for k in KINDS} == expected
    for arguments in (["--batches", "3"], ["--kafka-offsets", f"{flow.topic}-0=3"]):
        code, said = batchmerge(engine, "replay", "", *arguments)
        assert code == 0, said
        assert {k: tuple(READ[k](connections, flow.table(k))) for k in KINDS} == expected, arguments

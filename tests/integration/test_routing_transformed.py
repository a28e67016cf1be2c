"""Routes by columns that only the transform makes: landing, merging, replay and dead letters decide alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.dead_letters.listing import summary
from jobs.dead_letters.retry import retry
from resources.connections import Connections
from tests.kit.dead_letters import WHERE
from tests.kit.engine import Engine
from tests.kit.flow import Flow, rows
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce, put

EU, US, ALL = "eu", "us", "big"


def routed(flow: Flow, tables: dict[str, dict[str, Any]], transform: object, **parts: Any) -> dict[str, Any]:
    return {
        "source": {
            "topics": [flow.topic],
            "key": {"format": "json", "columns": KEY},
            "value": {"format": "json", "columns": COLUMNS},
            "transform": transform,
        },
        "tables": [{"kind": "iceberg", "table": flow.table(name), **options} for name, options in tables.items()],
        **parts,
    }


@pytest.mark.slow
def test_by_the_name_of_a_table(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> None:
    flow = Flow(topic(), [EU, US])
    tables = {name: {"mode": "upsert_delete"} for name in (EU, US)}

    def by(region: str) -> dict[str, Any]:
        return {
            "sql": f"select *, concat('{flow.name}_', {region}) as target, cast(substring(name, 4) as int) as number "
            "from records where name <> 'leave out'",
            "columns": {"target": "string", "number": "int"},
        }

    first = "split(name, '-')[0]"
    flow.overrides = routed(flow, tables, by(first), route_by="target")
    engine = Engine(flow, connections, spark)
    records = [
        put(1, "eu-1"),
        put(2, "us-2"),
        put(3, "xx-3"),
        put(4, "leave out"),
        put(5, "eu-fails"),
        put(6, "us-6"),
        put(1, "us-7"),
    ]
    produce(bootstrap(connections), flow.topic, records)
    (landed,) = engine.advance()
    counts = landed.counts
    assert (counts.read, counts.landed, counts.quarantined, counts.filtered) == (7, 4, 2, 1)
    assert [(g.stage, g.kind, g.records) for g in summary(engine.pipeline)] == [
        ("route", "NoTable", 1),
        ("transform", "transform", 1),
    ]

    def held(name: str) -> list[tuple[int, str]]:
        return [(key, value) for key, value, _ in rows(connections, flow.table(name))]

    # A row that moves appears in its new table and stays in the other: nothing shows where it was.
    assert (held(EU), held(US)) == ([(1, "eu-1")], [(1, "us-7"), (2, "us-2"), (6, "us-6")])
    # A tombstone names no table and deletes wherever its key is; an operation deletes where its record belongs.
    produce(bootstrap(connections), flow.topic, [Record(0, 1, None), put(2, "eu-2", op="d"), put(6, "us-6", op="d")])
    engine.advance()
    assert (held(EU), held(US)) == ([], [(2, "us-2")])
    for name in (EU, US):
        engine.replay(name, 1, 1)
    assert (held(EU), held(US)) == ([], [(2, "us-2")])
    source: Any = by(f"replace({first}, 'xx', 'eu')")
    corrected = engine.edited(**routed(flow, tables, source, route_by="target"))
    done = retry(corrected.pipeline)
    assert (done.tried, done.recovered, [dead_letter.kind for dead_letter in done.stay]) == (2, 1, ["transform"])
    assert (held(EU), held(US)) == ([(3, "xx-3")], [(2, "us-2")])


def test_by_an_expression(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> None:
    flow = Flow(topic(), [ALL])
    tables: dict[str, dict[str, Any]] = {
        ALL: {"mode": "append", "route": {"field": "size.big", "matches": "true"}, **WHERE},
        EU: {"mode": "upsert", "route": {"field": "part", "matches": "e.*"}},
    }
    transform = "select *, named_struct('big', amount > 10) as size, left(name, 2) as part from records"
    flow.overrides = routed(flow, tables, transform)
    engine = Engine(flow, connections, spark)
    engine.produce(put(1, "eu", amount=20), put(2, "eu"), put(3, "us", amount=30), put(4, "us"))
    (landed,) = engine.land()
    for name in tables:
        engine.merge(name)
    assert [key for key, _, _ in rows(connections, flow.table(ALL))] == [1, 3]
    assert [key for key, _, _ in rows(connections, flow.table(EU))] == [1, 2]
    assert (landed.counts.landed, landed.counts.quarantined) == (3, 1)
    assert [(g.stage, g.kind) for g in summary(engine.pipeline)] == [("route", "NoTable")]

"""One pipeline, many tables: each takes its records, and advances by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.changes.routing import RouteFilter
from jobs.dead_letters.retry import retry
from jobs.replay.landed import replay_batches
from jobs.replay.revise import merge_tables
from jobs.run_plan import plan_run
from jobs.spec.routing import Route
from jobs.verify.reconciliation import reconcile
from resources.connections import Connections
from resources.errors import BadRecords, ConfigurationError
from sql import render
from tests.kit import bigquery as in_bigquery
from tests.kit import clickhouse as in_clickhouse
from tests.kit.engine import Engine
from tests.kit.flow import Flow, rows
from tests.kit.model import Row
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce, put

PATTERNS = [
    "A+",
    "a|B",
    "[A-Z]*",
    "[^x]*",
    ".*",
    ".",
    r"\d+",
    r"\w+",
    r"\W",
    "x*?y{1,2}",
    "(?:ab|cd)+",
    r"a\.b|\$",
    "é",
]
NASTY = [
    "",
    "A",
    "AA",
    "AA\n",
    "\nA",
    "\r",
    "\u2028",
    "\x85",
    "1",
    "١",
    "é",
    "É",
    "ß",
    "ab",
    "abcd",
    "a.b",
    "axb",
    "yy",
    "$",
]
NASTY += ["K", "\U0001f600", "x\x00y", " ", "\x0b", "_"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_spark_and_arrow_decide_alike(pattern: str, spark: SparkSession) -> None:
    """What is landed as taken by a table is what the table reads."""
    Route(field="v", matches=pattern)
    values = [*NASTY, None]
    taken = RouteFilter(path=("value", "v"), pattern=pattern)
    struct = pa.array([{"v": v} for v in values], pa.struct([("v", pa.string())]))
    upserts = pa.array(["upsert"] * len(values))
    by_arrow = taken.mask(upserts, None, struct, upserts).to_pylist()
    frame = spark.createDataFrame(
        [(n, (v,), "upsert") for n, v in enumerate(values)], "n int, value struct<v: string>, op string"
    )
    frame.createOrReplaceTempView("nasty")
    text = render(
        "spark",
        "landed_rows",
        kept=(),
        columns=[],
        order_by=None,
        table=["nasty"],
        snapshot=0,
        mode="delete",
        touched=None,
        revised=False,
        has_revision=False,
        last=1,
        with_time=False,
        truncated_below=None,
        route=taken,
    )
    condition = text.split("IS NULL\n", 1)[1].strip().removeprefix("AND ")
    found = spark.sql(f"SELECT n FROM nasty WHERE {condition}", args=taken.parameters).collect()
    assert sorted(r["n"] for r in found) == [n for n, one in enumerate(by_arrow) if one]


def row(key: int, name: str) -> Row:
    return key, name, 1.0


def routed(flow: Flow, routes: dict[str, dict[str, Any]], mode: str = "upsert_delete", kind: str = "iceberg") -> Flow:
    tables = [{"kind": kind, "table": flow.table(name), "mode": mode, **options} for name, options in routes.items()]
    flow.overrides["tables"] = tables
    return flow


FIRST = [put(1, "AA"), put(2, "UA", partition=1), put(3, "XX"), put(4, "UA", partition=1), put(5, "AA")]
THEN = [put(4, "UA", "d", partition=1), Record(0, 5, None), put(1, "AA2", "u")]
WHERE = {"metadata_columns": ["topic", "partition", "offset"]}
ROUTES = {
    "american": {"route": {"field": "name", "matches": "AA.?"}},
    "united": {"route": {"field": "name", "matches": "UA"}},
    "nobody": {"route": {"field": "name", "matches": "ZZ"}},
}
AFTER_FIRST = {"american": [row(1, "AA"), row(5, "AA")], "united": [row(2, "UA"), row(4, "UA")], "nobody": []}
AFTER_ALL = {"american": [row(1, "AA2")], "united": [row(2, "UA")], "nobody": []}


def play(engine: Engine, read: Callable[[str], list[Row]]) -> None:
    """Two batches into three tables; an unroutable record; a delete by op and by tombstone; a replay."""
    servers, flow = bootstrap(engine.connections), engine.flow
    flow.modes = list(ROUTES)
    produce(servers, flow.topic, FIRST)
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.quarantined) == (4, 1)
    assert {name: read(flow.table(name)) for name in ROUTES} == AFTER_FIRST
    produce(servers, flow.topic, THEN)
    engine.advance()
    assert {name: read(flow.table(name)) for name in ROUTES} == AFTER_ALL
    for name in ROUTES:
        state = engine.destination(name).committed()
        assert state
        assert state == engine.pipeline.intermediate.committed(), "a table without rows advances all the same"
    engine.replay("american", 1, 2)
    assert read(flow.table("american")) == AFTER_ALL["american"]


def test_iceberg_tables_by_regular_expression(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    engine = Engine(routed(Flow(topic(partitions=2), []), ROUTES), connections, spark)
    play(engine, lambda table: rows(connections, table))


@pytest.mark.slow
def test_clickhouse_tables_by_regular_expression(
    clickhouse: Path, connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    del clickhouse
    engine = Engine(routed(Flow(topic(partitions=2), []), ROUTES, kind="clickhouse"), connections, spark)
    play(engine, lambda table: in_clickhouse.rows(connections, table))


@pytest.mark.slow
def test_bigquery_tables_by_regular_expression(
    bigquery: Path, connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    del bigquery
    engine = Engine(routed(Flow(topic(partitions=2), []), ROUTES, kind="bigquery"), connections, spark)
    play(engine, lambda table: in_bigquery.rows(connections, table))


KINDS = {
    "iceberg": rows,
    "clickhouse": in_clickhouse.rows,
    "bigquery": in_bigquery.rows,
}


@pytest.mark.parametrize(
    "kind", ["iceberg", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS if k != "iceberg")]
)
def test_records_name_their_tables(kind: str, request: pytest.FixtureRequest) -> None:
    if kind != "iceberg":
        request.getfixturevalue(kind)
    connections, spark, topic = map(request.getfixturevalue, ("connections", "spark", "topic"))
    flow = routed(Flow(topic(), []), {"{route_by}": WHERE}, "upsert_delete", kind)
    value = {"columns": COLUMNS, "unknown_fields": "add"}
    flow.overrides |= {"route_by": "name", "new_tables": {"allow": "[a-z]+", "most": 2}}
    flow.overrides["source"] = {"topics": [flow.topic], "key": {"columns": KEY}, "value": value}
    engine = Engine(flow, connections, spark)

    made: list[set[str]] = []  # what `plan` said before each batch

    def advance(*records: Record) -> tuple[int, int]:
        produce(bootstrap(connections), flow.topic, records)
        plan = plan_run(engine.pipeline)
        assert not plan.problems
        made.append({t.name.rsplit("_", 1)[-1] for t in plan.tables if any("create" in step for step in t.steps)})
        (landed,) = engine.land()
        assert not merge_tables(engine.pipeline).failed
        return landed.counts.landed, landed.counts.quarantined

    def held() -> dict[str, list[int]]:
        tables = {d.table.table.rsplit("_", 1)[-1]: d.table.table for d in engine.pipeline.destinations()}
        return {name: [key for key, _, _ in KINDS[kind](connections, table)] for name, table in tables.items()}

    assert engine.pipeline.destinations() == []
    assert advance(put(1, "login"), put(2, "Sale"), put(3, "no table"), put(4, "LOGIN")) == (3, 1)
    assert held() == {"login": [1, 4], "sale": [2]}
    refund = Record(0, 5, {"id": 5, "name": "refund", "op": "u", "reason": "late"})
    assert advance(refund, put(6, "login"), put(7, "other")) == (1, 2)
    assert held() == {"login": [1, 4, 6], "sale": [2]}
    assert made == [{"login", "sale"}, set()]
    engine.document["new_tables"] = {"allow": "[a-z]+", "most": 3}

    done = retry(engine.pipeline)

    # The first one has the room that there is. What cannot become a table says why, and stays.
    assert (done.tried, done.recovered) == (3, 1)
    assert [letter.message.split(":")[0] for letter in done.stay] == [
        "no table takes 'no table'",
        "no table takes 'other'",
    ]
    assert held() == {"login": [1, 4, 6], "refund": [5], "sale": [2]}
    assert {name: one.first for name, one in engine.pipeline.names.items()} == {"login": 1, "sale": 1, "refund": 3}
    # A table has the columns that its own records bring.
    columns = {d.table.table.rsplit("_", 1)[-1]: [*d.spec.source.row] for d in engine.pipeline.destinations()}
    assert [name for name, own in columns.items() if "reason" in own] == ["refund"]
    # A tombstone names no table and deletes wherever its key is.
    assert advance(Record(0, 4, None), Record(0, 5, None), put(8, "refund")) == (3, 0)
    last = {"login": [1, 6], "refund": [8], "sale": [2]}
    assert held() == last
    for destination in engine.pipeline.destinations():
        replay_batches(engine.pipeline, destination, 1, 4)
        assert reconcile(engine.pipeline, destination, 0).wrong == []
    assert held() == last


def test_two_topics_with_equal_coordinates(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    """Rows of the same partition and offset of two topics do not mix, in one table nor in one each."""
    one, two = topic("one"), topic("two")
    flow = Flow(one, ["both", "first"])
    flow.overrides["source"] = {
        "topics": [one, two],
        "key": {"columns": KEY},
        "value": {"columns": COLUMNS},
    }
    options = {"metadata_columns": ["topic", "partition", "offset"]}
    routed(flow, {"both": options, "first": {**options, "route": {"topics": [one]}}}, mode="append")
    engine = Engine(flow, connections, spark)
    produce(bootstrap(connections), one, [put(n, "one") for n in range(3)])
    produce(bootstrap(connections), two, [put(n, "two") for n in range(3)])
    engine.advance()
    firsts, seconds = [row(n, "one") for n in range(3)], [row(n, "two") for n in range(3)]
    assert rows(connections, flow.table("both")) == sorted([*firsts, *seconds])
    assert rows(connections, flow.table("first")) == firsts
    for mode in flow.modes:
        engine.replay(mode, 1, 1)
    assert rows(connections, flow.table("both")) == sorted([*firsts, *seconds])
    assert rows(connections, flow.table("first")) == firsts


def test_field_names_the_table_and_the_policy_may_be_to_fail(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = routed(Flow(topic(), ["a", "b"]), {"a": {}, "b": {}})
    flow.overrides["route_by"] = "name"
    engine = Engine(flow, connections, spark)
    short = flow.table("a").split(".")[1]
    produce(bootstrap(connections), flow.topic, [put(1, short.upper()), put(2, flow.table("b"))])
    engine.advance()
    assert rows(connections, flow.table("a")) == [row(1, short.upper())]
    assert rows(connections, flow.table("b")) == [row(2, flow.table("b"))]
    produce(bootstrap(connections), flow.topic, [put(3, "c")])
    with pytest.raises(BadRecords, match="route: no table takes this record"):
        engine.edited(on_bad_record="fail").land()
    assert rows(connections, flow.table("a")) == [row(1, short.upper())]


def test_a_failing_table_does_not_hold_the_others_back(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = routed(Flow(topic(), ["a", "b"]), {"a": {}, "b": {"create": False}})
    engine = Engine(flow, connections, spark)
    for batch in range(2):
        produce(bootstrap(connections), flow.topic, [put(batch, "x")])
        engine.land()
        engine.merge("a")
        with pytest.raises(ConfigurationError, match="does not exist"):
            engine.merge("b")
    assert rows(connections, flow.table("a")) == [row(0, "x"), row(1, "x")]
    caught_up = engine.edited(tables=routed(flow, {"a": {}, "b": {}}).overrides["tables"]).merge("b")
    assert caught_up
    assert [b.number for b in caught_up.batches] == [1, 2]
    assert rows(connections, flow.table("b")) == rows(connections, flow.table("a"))

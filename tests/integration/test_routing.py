"""One pipeline, many tables: each takes its records, and advances by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.changes.columns import CHANGES, ROWS
from jobs.changes.routing import RouteFilter
from jobs.spec.routing import Route
from resources.connections import Connections
from resources.errors import BadRecords, ConfigurationError
from sql import render
from tests.kit.engine import Engine
from tests.kit.flow import Flow, rows
from tests.kit.model import Row
from tests.kit.records import COLUMNS, KEY, bootstrap, produce, put

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
        unchanged=(),
        columns=[],
        order_by=None,
        table=["nasty"],
        snapshot=0,
        mode="delete",
        operations=CHANGES,
        row_operations=ROWS,
        touched=None,
        revised=False,
        last=1,
        with_time=False,
        truncated_below=None,
        route=taken,
    )
    condition = text.split("`error` IS NULL\n", 1)[1].strip().removeprefix("AND ")
    found = spark.sql(f"SELECT n FROM nasty WHERE {condition}", args=taken.parameters).collect()
    assert sorted(r["n"] for r in found) == [n for n, one in enumerate(by_arrow) if one]


def row(key: int, name: str) -> Row:
    return key, name, 1.0


def routed(flow: Flow, routes: dict[str, dict[str, Any]], mode: str = "upsert_delete", kind: str = "iceberg") -> Flow:
    tables = [{"kind": kind, "table": flow.table(name), "mode": mode, **options} for name, options in routes.items()]
    flow.overrides["tables"] = tables
    return flow


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

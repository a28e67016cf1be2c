"""Columns of ClickHouse tables that hold more than the pipeline file says: nulls, larger numbers, rows of before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.replay.landed import replay_batches
from jobs.verify.reconciliation import reconcile
from resources.clickhouse import ClickHouseServer
from resources.connections import Connections
from resources.errors import ConfigurationError, SchemaRefused
from tests.kit.clickhouse import clickhouse_flow, servers
from tests.kit.flow import Flow
from tests.kit.records import COLUMNS, Record, bootstrap, produce, put

pytestmark = pytest.mark.usefixtures("clickhouse")

LARGE = Decimal("12345678901.25")


def reading(flow: Flow, **columns: str) -> Flow:
    """The pipeline with these columns of the value besides the usual ones."""
    source = flow.spec_document["source"]
    value = {**source["value"], "columns": {**COLUMNS, **columns}}
    return replace(flow, overrides={**flow.overrides, "source": {**source, "value": value}})


def make(server: ClickHouseServer, table: str, columns: str) -> None:
    """A table that somebody else has made."""
    server.execute(f"CREATE DATABASE IF NOT EXISTS {table.partition('.')[0]}")
    usual = "id Int64, name Nullable(String), amount Nullable(Float64), op Nullable(String)"
    server.execute(
        f"CREATE TABLE {table} ({usual}, {columns}) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 1000"
    )


def types(server: ClickHouseServer, table: str) -> dict[str, str]:
    found = server.rows(f"SELECT name, type FROM system.columns WHERE concat(database, '.', table) = '{table}'")
    return {row["name"]: row["type"] for row in found}


def test_a_change_of_its_type_leaves_a_column_what_it_holds(
    connections: Connections, topic: Callable[..., str]
) -> None:
    flow = clickhouse_flow(topic(), ["append"])
    (server,), table = servers(connections), flow.table("append")
    make(server, table, "size Nullable(Int32), total Int64, price Decimal(18, 2), ratio Float64")
    server.execute(f"INSERT INTO {table} (id, size, total, price, ratio) VALUES (1, NULL, {2**40}, {LARGE}, 0.1)")
    changed = reading(flow, size="long not null", total="int", price="decimal(9,2)", ratio="float")
    changed.pipeline(connections).destinations()[0].prepare()
    assert server.rows(f"SELECT size, total, price, ratio FROM {table}") == [
        {"size": None, "total": 2**40, "price": LARGE, "ratio": 0.1}
    ]
    there = types(server, table)
    assert [there[name] for name in ("size", "total", "price", "ratio")] == [
        "Nullable(Int64)",
        "Nullable(Int64)",
        "Nullable(Decimal(18, 2))",
        "Nullable(Float64)",
    ]
    assert changed.pipeline(connections).destinations()[0].prepare() == []


def test_a_required_column_that_was_added_is_known_again(connections: Connections, topic: Callable[..., str]) -> None:
    """It was added as optional. Bytes are the same type there as text, and times without a zone as those with one."""
    flow = clickhouse_flow(topic(), ["append"])
    flow.pipeline(connections).destinations()[0].prepare()
    nested = "array<struct<raw: binary not null, by: map<binary,timestamp_ntz not null>>>"
    added = reading(flow, raw="binary not null", at="timestamp_ntz not null", parts=nested)
    assert len(added.pipeline(connections).destinations()[0].prepare()) == 3
    assert added.pipeline(connections).destinations()[0].prepare() == []
    relaxed = reading(flow, raw="binary", at="timestamp_ntz", parts=nested.replace(" not null", ""))
    done = relaxed.pipeline(connections).destinations()[0].prepare()
    assert [change.split(": ")[1] for change in done] == [
        "make parts.element.raw optional",
        "make parts.element.by.value optional",
    ]
    assert relaxed.pipeline(connections).destinations()[0].prepare() == []


def test_rows_that_were_landed_before_a_column_was_required(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    """ClickHouse would store 0 for them, also over the null that is there."""
    flow = clickhouse_flow(topic(), ["append", "upsert_delete"])
    old = reading(flow, size="int")
    produce(bootstrap(connections), flow.topic, [put(1, size=7), put(2), put(3, size=3), Record(0, 3, None)])
    pipeline = old.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    protocol.merge(pipeline, pipeline.destinations()[0])
    protocol.merge(pipeline, pipeline.destinations()[1])
    produce(bootstrap(connections), flow.topic, [put(4)])
    list(protocol.land(pipeline, 0))
    now = reading(flow, size="int not null")
    pipeline = now.pipeline(connections, spark)
    (server,) = servers(connections)
    for table in pipeline.destinations():
        assert protocol.merge(pipeline, table)
        server.execute(f"DELETE FROM {table.table.table} WHERE id = 2", settings={"mutations_sync": 1})
        assert replay_batches(pipeline, table, 1, 2)
        final = " FINAL" if table.table.mode == "upsert_delete" else ""
        found = server.rows(f"SELECT id, size FROM {table.table.table}{final} ORDER BY id")
        kept = [] if final else [{"id": 3, "size": 3}]
        assert found == [{"id": 1, "size": 7}, {"id": 2, "size": None}, *kept, {"id": 4, "size": None}]
        assert reconcile(pipeline, table, 0).wrong == []


def test_landed_values_that_a_new_table_cannot_hold_are_refused(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(), ["append"])
    produce(bootstrap(connections), flow.topic, [put(1, size=2**40, part={"n": 2**40}), put(2)])
    pipeline = reading(flow, size="long", part="struct<n: long>").pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    for columns, message in (
        ({"size": "int"}, "column size is int, which cannot hold a value that is landed"),
        ({"part": "struct<n: int>"}, "column part is struct<n: int>, which cannot hold a value"),
        ({"size": "long not null"}, "column size is `not null`, and a row that is landed has no value"),
    ):
        flow.table_options["null_collections"] = "empty"
        pipeline = reading(flow, **columns).pipeline(connections, spark)
        with pytest.raises(SchemaRefused, match=message) as caught:
            protocol.merge(pipeline, pipeline.destinations()[0])
        assert str(2**40) not in str(caught.value)
        pipeline.destinations()[0].drop()
        pipeline.destinations()[0].drop_state()


def test_nested_columns_that_the_server_has_flattened_are_named(
    connections: Connections, topic: Callable[..., str]
) -> None:
    """ClickHouse says that it adds the column, and does not."""
    flow = clickhouse_flow(topic(), ["append"])
    (server,), table = servers(connections), flow.table("append")
    make(server, table, "stops Nested(at String, fax String)")
    changed = reading(flow, stops="array<struct<at: string, fax: string>>")
    with pytest.raises(SchemaRefused, match=r"column stops is Nested in the table, as stops\.at, stops\.fax"):
        changed.pipeline(connections).destinations()[0].prepare()
    assert types(server, table).keys() == {"id", "name", "amount", "op", "stops.at", "stops.fax"}


def test_a_change_that_the_server_refuses_is_named(connections: Connections, topic: Callable[..., str]) -> None:
    flow = clickhouse_flow(topic(), ["append"])
    (server,), table = servers(connections), flow.table("append")
    make(server, table, "size Int32, PROJECTION p (SELECT size, count() GROUP BY size)")
    with pytest.raises(SchemaRefused, match=r"widen size from int to long; .* 524 .* Fix: .*projection"):
        reading(flow, size="long").pipeline(connections).destinations()[0].prepare()


BUFFER = "Buffer({database}, '{name}_there', 1, 9, 99, 99, 999, 9999, 99999)"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("VIEW {table} AS SELECT * FROM {table}_there", "it is a view, which takes no rows"),
        (f"TABLE {{table}} AS {{table}}_there ENGINE = {BUFFER}", "its engine, Buffer, holds rows in memory"),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(
    made: str, message: str, connections: Connections, topic: Callable[..., str]
) -> None:
    flow = clickhouse_flow(topic(), ["append"])
    (server,), table = servers(connections), flow.table("append")
    make(server, f"{table}_there", "size Int32")
    database, _, name = table.partition(".")
    server.execute("CREATE " + made.format(table=table, database=database, name=name))
    before = types(server, table)
    with pytest.raises(ConfigurationError, match=message):
        reading(flow, size="int", more="int").pipeline(connections).destinations()[0].prepare()
    assert types(server, table) == before

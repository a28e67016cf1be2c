"""Every type of the seed, from a Kafka record to a SELECT, extremes included; what does not fit is a dead letter."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from jobs import protocol
from jobs.verify.reconciliation import reconcile
from resources.clickhouse import ClickHouseServer
from resources.connections import Connections
from resources.errors import SchemaRefused
from tests.kit.clickhouse import clickhouse_flow, servers
from tests.kit.flow import Flow
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("clickhouse")

# declared type, ClickHouse type (None: the default), value in the record, text of the SELECT
ROUND_TRIPS = [
    *[(kind, f"Int{bits}", sign, str(sign)) for bits, kind in ((8, "int"), (16, "int"), (32, "long"), (64, "long"))
      for sign in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)],
    *[("string", f"Int{bits}", str(v), str(v)) for bits in (128, 256)
      for v in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)],
    *[("long", f"UInt{bits}", v, str(v)) for bits in (8, 16, 32) for v in (0, 2**bits - 1)],
    *[("string", f"UInt{bits}", str(v), str(v)) for bits in (64, 128, 256) for v in (0, 2**bits - 1)],
    ("double", "Float32", 1.5, "1.5"),
    ("float", None, -0.25, "-0.25"),
    ("double", None, 1.7976931348623157e308, "1.7976931348623157e308"),
    ("double", None, 5e-324, "5e-324"),
    ("boolean", None, True, "true"),
    ("boolean", "Bool", False, "false"),
    ("string", None, "", ""),
    ("string", None, "tab\t, quote ', ünï😀", "tab\t, quote ', ünï😀"),
    ("string", "FixedString(4)", "üab", "üab"),
    ("string", "LowCardinality(String)", "EWR", "EWR"),
    ("string", "LowCardinality(Nullable(String))", None, None),
    ("decimal(9,2)", None, "-9999999.99", "-9999999.99"),
    ("decimal(38,10)", None, "9" * 28 + "." + "9" * 10, "9" * 28 + "." + "9" * 10),
    ("decimal(38,10)", "Decimal(20, 4)", "12.3400000000", "12.34"),
    ("string", "Decimal(76, 10)", "9" * 66 + ".0000000001", "9" * 66 + ".0000000001"),
    ("date", None, "1900-01-01", "1900-01-01"),
    ("date", None, "2299-12-31", "2299-12-31"),
    ("date", "Date", "2149-06-06", "2149-06-06"),
    ("date", "Date", "1970-01-01", "1970-01-01"),
    ("timestamp", None, "1900-01-01T00:00:00Z", "1900-01-01 00:00:00.000000"),
    ("timestamp", None, "2299-12-31T23:59:59.999999Z", "2299-12-31 23:59:59.999999"),
    ("timestamp", "DateTime('UTC')", "2106-02-07T06:28:15Z", "2106-02-07 06:28:15"),
    ("timestamp", "DateTime('Europe/Berlin')", "2026-07-01T00:00:00Z", "2026-07-01 02:00:00"),
    ("timestamp", "DateTime64(3, 'UTC')", "2026-07-01T00:00:00.123Z", "2026-07-01 00:00:00.123"),
    ("timestamp", "DateTime64(9, 'UTC')", "2262-04-11T23:47:16Z", "2262-04-11 23:47:16.000000000"),
    ("timestamp_ntz", None, "2026-07-01T12:00:00.5", "2026-07-01 12:00:00.500000"),
    ("string", "DateTime64(9, 'UTC')", "2026-07-01 00:00:00.123456789", "2026-07-01 00:00:00.123456789"),
    ("string", "UUID", "61f0c404-5cb3-11e7-907b-a6006ad3dba0", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    ("string", "IPv4", "255.255.255.255", "255.255.255.255"),
    ("string", "IPv6", "2001:db8::ff00:42:8329", "2001:db8::ff00:42:8329"),
    ("string", "Enum8('a' = -128, 'b' = 127)", "b", "b"),
    ("string", "Enum16('x' = 1, 'y' = 32767)", "y", "y"),
    ("long", "Nullable(UInt8)", None, None),
    ("long", "SimpleAggregateFunction(max, UInt8)", 200, "200"),
    ("long", None, None, None),
    ("array<long>", None, [1, -(2**63), 2**63 - 1], f"[1,{-(2**63)},{2**63 - 1}]"),
    ("array<string>", None, [], "[]"),
    ("array<string>", None, ["a", None], "['a',NULL]"),
    ("array<long>", "Array(UInt8)", [0, 255], "[0,255]"),
    ("array<array<double>>", None, [[1.5], []], "[[1.5],[]]"),
    ("map<string,long>", None, {"a": 1, "b": None}, "{'a':1,'b':NULL}"),
    ("map<string,long>", "Map(LowCardinality(String), UInt16)", {"a": 65535}, "{'a':65535}"),
    ("struct<a: long, b: struct<c: string>>", None, {"a": 1, "b": {"c": "x"}}, "(1,('x'))"),
    ("struct<lat: double, lon: double>", "Tuple(lat Float64, lon Float64)", {"lat": 1.0, "lon": 2.0}, "(1,2)"),
    ("struct<a: long, b: string>", "Tuple(a Nullable(Int32), b Nullable(String))", {"a": 1, "b": None}, "(1,NULL)"),
    ("struct<a: long, b: struct<c: string>>", "Tuple(a Int64, b Tuple(c LowCardinality(Nullable(String))))",
     {"a": 1, "b": {"c": None}}, "(1,(NULL))"),
    ("struct<doc: string, price: decimal(10,4)>", "Tuple(doc JSON, price Decimal(10, 2))",
     {"doc": '{"a": 1}', "price": "1.25"}, """('{"a":1}',1.25)"""),
    ("struct<price: decimal(10,4), w: double>", "Tuple(price Decimal(10, 2), w Float64)", {"price": "1.25", "w": "NaN"},
     "(1.25,nan)"),
    ("array<struct<x: string, y: long>>", "Nested(x String, y UInt8)", [{"x": "p", "y": 7}], "[('p',7)]"),
    ("string", "Variant(UInt64, String)", "42", "42"),
    ("string", "Variant(UInt64, String)", "text", "text"),
    ("string", "JSON", '{"a":{"b":[1,2]},"c":"x"}', '{"a":{"b":[1,2]},"c":"x"}'),
    ("struct<a: long, b: string>", "JSON", {"a": 7, "b": "y"}, '{"a":7,"b":"y"}'),
    ("binary", None, "AP8=", "00ff"),  # the client shows what is no UTF-8 in hexadecimal digits
]  # fmt: skip

# declared type, ClickHouse type, options, value that does not fit, reason
UNFIT = [
    ("long", "UInt8", 256, "does not fit"),
    ("long", "UInt8", -1, "does not fit"),
    ("long", "UInt8", None, "does not fit"),
    ("string", "UInt64", "18446744073709551616", "does not fit"),
    ("string", "UInt256", str(2**256), "does not fit"),
    ("string", "Int128", str(2**127), "does not fit"),
    ("string", "UInt8", "seven", "does not fit"),
    ("double", "Float32", 0.1, "does not fit"),
    ("decimal(10,4)", "Decimal(10, 2)", "1.2345", "does not fit"),
    ("string", "Decimal(10, 2)", "1.239", "does not fit"),
    ("string", "FixedString(2)", "abc", "does not fit"),
    ("string", "UUID", "no uuid", "does not fit"),
    ("string", "IPv4", "256.0.0.1", "does not fit"),
    ("string", "IPv6", "::g", "does not fit"),
    ("string", "Enum8('a' = 1)", "b", "does not fit"),
    ("date", None, "1899-12-31", "before 1900"),
    ("date", "Date", "2149-06-07", "does not fit"),
    ("timestamp", None, "2300-01-01T00:00:00Z", "after 2299"),
    ("timestamp", "DateTime('UTC')", "2106-02-07T06:28:16Z", "does not fit"),
    ("timestamp", "DateTime('UTC')", "2026-01-01T00:00:00.5Z", "does not fit"),
    ("timestamp", "Date", "2026-01-01T01:00:00Z", "does not fit"),
    ("timestamp", "DateTime64(9, 'UTC')", "2290-01-01T00:00:00Z", "does not fit"),
    ("string", "DateTime('UTC')", "2150-01-01 00:00:00", "does not fit"),
    ("array<long>", None, None, "null in an array"),
    ("array<array<long>>", None, [[1], None], "null in an array"),
    ("array<long>", "Array(UInt8)", [1, 256], "does not fit"),
    ("map<string,long>", "Map(String, UInt8)", {"a": 300}, "does not fit"),
    ("array<timestamp>", None, ["2300-01-01T00:00:00Z"], "after 2299"),
    ("string", "JSON", "{no json", "does not fit"),
    ("string", "Nullable(UUID)", "no uuid", "does not fit"),
    ("string", "LowCardinality(Nullable(UUID))", "no uuid", "does not fit"),
    ("string", "Nullable(IPv4)", "no address", "does not fit"),
    ("string", "Nullable(Float64)", "much", "does not fit"),
    ("string", "Nullable(Int32)", "", "does not fit"),
    ("string", "Float64", "1e400", "does not fit"),
    ("string", "Enum8('a' = 1)", "1", "does not fit"),
    ("string", "Variant(UInt64, String)", "007", "does not fit"),
    ("string", "NUMERIC(10, 2)", "1.239", "does not fit"),
    ("string", "date", "2300-01-01", "does not fit"),
    ("struct<price: decimal(10,4), w: double>", "Tuple(price Decimal(10, 2), w Float64)", {"price": "1.2345", "w": 1.5},
     "does not fit"),
    ("struct<id: string, w: double>", "Tuple(id Nullable(UUID), w Float64)", {"id": "no uuid", "w": 1.5},
     "does not fit"),
    ("struct<doc: string, at: timestamp>", "Tuple(doc JSON, at DateTime('UTC'))",
     {"doc": "{}", "at": "1960-01-01T00:00:00Z"}, "does not fit"),
]  # fmt: skip


def _flow(topic: str, columns: dict[str, str], types: dict[str, str], mode: str = "append", **options: object) -> Flow:
    flow = clickhouse_flow(topic, [mode], 1000, column_types=types, **options)
    flow.overrides["source"] = {
        "topics": [topic],
        "key": {"format": "json", "columns": {"id": "long"}},
        "value": {"format": "json", "columns": {"id": "long", **columns}},
    }
    flow.overrides["changes"] = {"key": {"columns": ["id"]}}
    return flow


def _produce(connections: Connections, topic: str, values: list[dict[str, object] | None]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for n, value in enumerate(values):
        raw = None if value is None else json.dumps({"id": n, **value}).encode()
        producer.produce(topic, key=json.dumps({"id": n}).encode(), value=raw)
    assert producer.flush(PATIENCE) == 0


def _advance(connections: Connections, flow: Flow) -> None:
    pipeline = flow.pipeline(connections)
    list(protocol.land(pipeline, 0))
    protocol.merge(pipeline, pipeline.destinations()[0])


def _dead_letters(server: ClickHouseServer, flow: Flow, mode: str = "append") -> list[dict[str, object]]:
    return server.rows(f"SELECT * FROM {flow.table(mode)}__dead_letters ORDER BY topic, partition, offset, column")


def test_every_type_from_record_to_select(connections: Connections, topic: Callable[..., str]) -> None:
    columns = {f"c{n}": case[0] for n, case in enumerate(ROUND_TRIPS)}
    types = {f"c{n}": case[1] for n, case in enumerate(ROUND_TRIPS) if case[1]}
    flow = _flow(topic(), columns, types)
    _produce(connections, flow.topic, [{f"c{n}": case[2] for n, case in enumerate(ROUND_TRIPS)}])
    _advance(connections, flow)
    (server,) = servers(connections)
    assert _dead_letters(server, flow) == []
    texts = ", ".join(f"toString(c{n}) AS c{n}" for n in range(len(ROUND_TRIPS)))
    (found,) = server.rows(f"SELECT {texts} FROM {flow.table('append')}")
    wrong = []
    for n, (declared, wanted, _, text) in enumerate(ROUND_TRIPS):
        got = found[f"c{n}"]
        if got != text:
            wrong.append((declared, wanted, text, got))
    assert wrong == []


def test_what_does_not_fit_is_a_dead_letter(connections: Connections, topic: Callable[..., str]) -> None:
    columns = {f"c{n}": case[0] for n, case in enumerate(UNFIT)}
    types = {f"c{n}": case[1] for n, case in enumerate(UNFIT) if case[1]}
    good: dict[str, object] = {
        "UInt8": 1, "UInt64": "1", "UInt256": "1", "Int128": "1", "Float32": 1.5, "Decimal(10, 2)": "1.25",
        "FixedString(2)": "ab", "UUID": "61f0c404-5cb3-11e7-907b-a6006ad3dba0", "IPv4": "1.2.3.4", "IPv6": "::1",
        "Enum8('a' = 1)": "a", "Array(UInt8)": [1], "Map(String, UInt8)": {"a": 1}, "JSON": "{}",
        "Nullable(UUID)": None, "LowCardinality(Nullable(UUID))": None, "Nullable(IPv4)": "1.2.3.4",
        "Nullable(Float64)": "inf", "Nullable(Int32)": "1", "Float64": "1.5", "Variant(UInt64, String)": "7",
        "NUMERIC(10, 2)": "1.25", "date": "2026-01-01",
        "Tuple(price Decimal(10, 2), w Float64)": {"price": "1.25", "w": 1.5},
        "Tuple(id Nullable(UUID), w Float64)": {"id": None, "w": 1.5},
        "Tuple(doc JSON, at DateTime('UTC'))": {"doc": "{}", "at": "2026-01-01T00:00:00Z"},
    }  # fmt: skip
    plain = {"date": "2026-01-01", "timestamp": "2026-01-01T00:00:00Z", "array<long>": [1], "array<array<long>>": [[1]],
             "array<timestamp>": []}  # fmt: skip

    def fitting(case: tuple[str, str | None, object, str]) -> object:
        declared, kind = case[0], case[1] or ""
        if declared == "string" and kind.startswith("DateTime"):
            return "2026-01-01 00:00:00"
        if (declared, kind) == ("string", "UInt8"):
            return "1"
        return plain[declared] if declared in plain and kind not in good else good[kind]

    fits = {f"c{n}": fitting(case) for n, case in enumerate(UNFIT)}
    values = [{**fits, f"c{n}": case[2]} for n, case in enumerate(UNFIT)]
    flow = _flow(topic(), columns, types)
    _produce(connections, flow.topic, [fits, *values, fits])
    _advance(connections, flow)
    (server,) = servers(connections)
    kept = [row["id"] for row in server.rows(f"SELECT id FROM {flow.table('append')} ORDER BY id")]
    assert kept == [0, len(UNFIT) + 1]
    dead_letters = _dead_letters(server, flow)
    assert [dead_letter["offset"] for dead_letter in dead_letters] == list(range(1, len(UNFIT) + 1))
    for n, (case, dead_letter) in enumerate(zip(UNFIT, dead_letters, strict=True)):
        assert dead_letter["column"] == f"c{n}", case
        assert dead_letter["declared"] == case[0]
        assert case[1] is None or dead_letter["wanted"] == case[1]
        assert case[3] in str(dead_letter["reason"]), case
        assert json.loads(str(dead_letter["row"]))["id"] == n + 1


def test_two_keys_never_become_one_row(connections: Connections, topic: Callable[..., str]) -> None:
    uuid_ = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
    cases = {
        "u": ("UUID", uuid_, uuid_.upper()),
        "b": ("Bool", "true", "1"),
        "f": ("Float64", "1.5", "1.50"),
        "a": ("IPv6", "::1", "0:0:0:0:0:0:0:1"),
    }
    flow = _flow(topic(), {}, {name: kind for name, (kind, _, _) in cases.items()}, "upsert")
    flow.overrides["source"]["key"]["columns"] = dict.fromkeys(cases, "string not null")
    flow.overrides["changes"] = {"key": {"columns": list(cases)}}
    keys = [{name: case[1] for name, case in cases.items()}]
    keys += [{**keys[0], name: case[2]} for name, case in cases.items()]
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for key in keys:
        producer.produce(flow.topic, key=json.dumps(key).encode(), value=b'{"id": 1}')
    assert producer.flush(PATIENCE) == 0
    _advance(connections, flow)
    (server,) = servers(connections)
    assert len(server.rows(f"SELECT u FROM {flow.table('upsert')}")) == 1
    assert [dead_letter["column"] for dead_letter in _dead_letters(server, flow, "upsert")] == list(cases)


def test_rows_are_compared_by_keys_of_named_types(connections: Connections, topic: Callable[..., str]) -> None:
    types = {"at": "DateTime('Europe/Berlin')", "n": "Int256", "day": "Date", "part": "Decimal(76, 0)"}
    keys = {"at": "timestamp not null", "n": "long not null", "day": "date not null", "part": "decimal(20,0) not null"}
    flow = _flow(topic(), {}, types, "upsert")
    flow.overrides["source"]["key"]["columns"] = keys
    flow.overrides["changes"] = {"key": {"columns": list(keys)}}
    key = {"at": "2026-10-25T00:30:00Z", "n": -5, "day": "2026-01-01", "part": "7"}
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for at in ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"):  # 02:30 in Berlin, twice
        producer.produce(flow.topic, key=json.dumps({**key, "at": at}).encode(), value=b'{"id": 1}')
    assert producer.flush(PATIENCE) == 0
    _advance(connections, flow)
    pipeline = flow.pipeline(connections)
    verdict = reconcile(pipeline, pipeline.destinations()[0], 0)
    assert (verdict.wrong, verdict.compared) == ([], 2)


def test_deletes_need_only_their_key(connections: Connections, topic: Callable[..., str]) -> None:
    columns = {"e": "string not null", "n": "long", "tags": "array<long>"}
    types = {"e": "Enum8('a' = 1)", "n": "UInt8"}
    flow = _flow(topic(), columns, types, "upsert_delete")
    _produce(connections, flow.topic, [{"e": "a", "n": 1, "tags": [1]}, None])
    _advance(connections, flow)
    _produce(connections, flow.topic, [None, {"e": "a", "n": 2, "tags": []}])
    _advance(connections, flow)
    (server,) = servers(connections)
    assert _dead_letters(server, flow, "upsert_delete") == []
    found = server.rows(f"SELECT id, n, tags FROM {flow.table('upsert_delete')} FINAL")
    assert found == [{"id": 1, "n": 2, "tags": []}]


def test_null_collections_can_be_stored_empty(connections: Connections, topic: Callable[..., str]) -> None:
    flow = _flow(topic(), {"tags": "array<long>", "m": "map<string,long>"}, {}, null_collections="empty")
    _produce(connections, flow.topic, [{"tags": None}, {"tags": [3], "m": {"a": 1}}])
    _advance(connections, flow)
    found = servers(connections)[0].rows(f"SELECT tags, m FROM {flow.table('append')} ORDER BY id")
    assert found == [{"tags": [], "m": {}}, {"tags": [3], "m": {"a": 1}}]


def test_types_that_the_file_names_are_those_of_the_table(connections: Connections, topic: Callable[..., str]) -> None:
    flow = _flow(topic(), {"a": "long"}, {})
    _produce(connections, flow.topic, [{"a": 1}])
    _advance(connections, flow)
    flow.table_options["column_types"] = {"a": "UInt8"}
    with pytest.raises(SchemaRefused, match=r"column a is Nullable\(Int64\) in the table and UInt8 in the file"):
        flow.pipeline(connections).destinations()[0].prepare()


def test_fields_inside_a_column_come_and_widen(connections: Connections, topic: Callable[..., str]) -> None:
    columns = {"s": "struct<x: int>", "l": "array<struct<x: long>>", "m": "map<string,struct<x: long>>"}
    flow = _flow(topic(), columns, {}, mode="upsert_delete")
    flow.overrides["source"]["value"]["unknown_fields"] = "add"
    old: dict[str, object] = {"s": {"x": 1}, "l": [{"x": 2}], "m": {"k": {"x": 3}}}
    _produce(connections, flow.topic, [old])
    _advance(connections, flow)
    new: dict[str, object] = {"s": {"x": 4, "y": "a"}, "l": [{"x": 5, "y": {"z": 1}}], "m": {"k": {"x": 6, "y": 0.5}}}
    _produce(connections, flow.topic, [old, new])
    _advance(connections, flow)
    flow.overrides["source"]["value"]["columns"]["s"] = "struct<x: long>"
    (change,) = flow.pipeline(connections).destinations()[0].prepare(dry_run=True)
    assert change.endswith("widen s.x from int to long")
    _produce(connections, flow.topic, [old, new, {**old, "s": {"x": 2**40}}])
    _advance(connections, flow)
    (server,) = servers(connections)
    query = f"SELECT toString(s) AS s, toString(l) AS l, toString(m) AS m FROM {flow.table('upsert_delete')} FINAL"
    assert [tuple(row.values()) for row in server.rows(f"{query} ORDER BY id")] == [
        ("(1,NULL)", "[(2,NULL)]", "{'k':(3,NULL)}"),
        ("(4,'a')", "[(5,'{\"z\":1}')]", "{'k':(6,0.5)}"),
        (f"({2**40},NULL)", "[(2,NULL)]", "{'k':(3,NULL)}"),
    ]
    pipeline = flow.pipeline(connections)
    assert reconcile(pipeline, pipeline.destinations()[0], 0).wrong == []


def test_open_columns_follow_nested_ones_that_are_there(connections: Connections, topic: Callable[..., str]) -> None:
    """Of a table that somebody else has made, with a field more than records have."""
    flow = _flow(topic(), {}, {}, null_collections="empty")
    flow.overrides["source"]["value"] = {"format": "json"}
    (server,) = servers(connections)
    table = flow.table("append")
    server.execute(f"CREATE DATABASE IF NOT EXISTS {table.split('.')[0]}")
    server.execute(
        f"CREATE TABLE {table} (id Int64, s Tuple(x Nullable(Int64), theirs String), l Array(Nullable(Int64))) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 1000",
        settings={"flatten_nested": 0},
    )
    server.execute(f"INSERT INTO {table} VALUES (-1, (7, 'kept'), [1])")
    _produce(connections, flow.topic, [{"s": {"x": 1}, "l": [1, 2]}, {"s": {"x": 2, "y": "new"}}, {"l": "none"}])
    _advance(connections, flow)
    found = server.rows(f"SELECT id, toString(s) AS s, l FROM {table} ORDER BY id")
    assert [tuple(row.values()) for row in found] == [
        (-1, "(7,'kept',NULL)", [1]),
        (0, "(1,'',NULL)", [1, 2]),
        (1, "(2,'','new')", []),
    ]


def test_columns_take_what_their_types_hold(connections: Connections, topic: Callable[..., str]) -> None:
    """LowCardinality and SimpleAggregateFunction, in a table that somebody else has made, without `column_types`."""
    flow = _flow(topic(), {"name": "string", "high": "long", "tags": "array<string not null>"}, {})
    (server,) = servers(connections)
    table = flow.table("append")
    server.execute(f"CREATE DATABASE IF NOT EXISTS {table.split('.')[0]}")
    server.execute(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String), high SimpleAggregateFunction(max, Int64), "
        "tags Array(LowCardinality(String))) ENGINE = MergeTree ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 1000"
    )
    changes = flow.pipeline(connections).destinations()[0].prepare(dry_run=True)
    assert [one.rpartition(": ")[2] for one in changes if "hidden" not in one and "add" not in one] == [
        "make name optional",
        "make high optional",
    ]
    _produce(connections, flow.topic, [{"name": "a", "high": 7, "tags": ["x", "x"]}, {"tags": []}])
    _advance(connections, flow)
    found = server.rows(f"SELECT id, name, high, tags FROM {table} ORDER BY id")
    assert [tuple(row.values()) for row in found] == [(0, "a", 7, ["x", "x"]), (1, None, None, [])]
    kinds = server.rows(f"SELECT toTypeName(name) AS a, toTypeName(high) AS b, toTypeName(tags) AS c FROM {table}")[0]
    assert list(kinds.values()) == [
        "LowCardinality(Nullable(String))",
        "SimpleAggregateFunction(max, Nullable(Int64))",
        "Array(LowCardinality(String))",
    ]
    pipeline = flow.pipeline(connections)
    assert reconcile(pipeline, pipeline.destinations()[0], 0).wrong == []

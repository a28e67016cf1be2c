"""Every format from a real broker and, where it has one, a real Schema Registry, into one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from jobs.schema.protobuf import Messages, compiled, message_class
from orchestration.cli import infer as infer_command
from resources.connections import Connections, SchemaRegistryConnection
from resources.errors import Unavailable
from tests.kit.avro import encoded, record, text
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.network import with_connection
from tests.kit.records import bootstrap
from tests.kit.registry import register, running_registry
from tests.kit.waiting import PATIENCE

COLUMNS = {"id": "long not null", "name": "string", "amount": "double"}
AVRO = record(("id", "long"), ("name", ["null", "string"]), ("amount", "double"), name="Row")
OLDER = record(("id", "int"), ("amount", "float"), name="Row")
PARTS = 'syntax = "proto3"; package parts; message Name { string text = 1; }'
PROTO = """syntax = "proto3"; package shop; import "parts";
message Unused { parts.Name name = 1; }
message Row { int64 id = 1; optional string name = 2; double amount = 3; }"""
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
CONNECT = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "name", "type": "string", "optional": True},
        {"field": "amount", "type": "double"},
    ],
}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("registry")) as url:
        yield url


def with_registry(connections: Connections, url: str) -> Connections:
    return with_connection(connections, "registry", SchemaRegistryConnection(kind="schema_registry", url=url))


def framed(schema_id: int, content: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + content


def proto(descriptors: bytes, **fields: Any) -> bytes:
    content: bytes = message_class(Messages(descriptors).named("shop.Row"))(**fields).SerializeToString()
    return content


def produce(connections: Connections, records: dict[str, list[bytes]], partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for topic, values in records.items():
        for n, value in enumerate(values):
            producer.produce(topic, value=value, partition=n % partitions)
    assert producer.flush(PATIENCE) == 0


def flow(encodings: dict[str, dict[str, Any]]) -> Flow:
    """An append-only table of these topics, each with its encoding."""
    source = {
        "topics": list(encodings),
        "value": {"format": "json", "columns": COLUMNS},
        "per_topic": {topic: {"value": encoding} for topic, encoding in encodings.items() if encoding},
    }
    return Flow(next(iter(encodings)), ["append"], overrides={"source": source, "changes": {}})


def test_every_format_in_one_table(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], registry: str, tmp_path: Path
) -> None:
    descriptors = compiled((PARTS, PROTO), ("parts", ""))
    (tmp_path / "row.avsc").write_text(text(AVRO))
    (tmp_path / "row.desc").write_bytes(descriptors)
    register(registry, "parts", PARTS, "PROTOBUF")
    ids = [
        register(registry, "row-value", text(OLDER)),
        register(registry, "row-value", text(AVRO)),
        register(registry, "proto-value", PROTO, "PROTOBUF", ("parts",)),
        register(registry, "json-value", json.dumps(JSON_SCHEMA), "JSON"),
    ]
    encodings: dict[str, dict[str, Any]] = {
        topic("json"): {},
        topic("connect"): {"format": "connect_json"},
        topic("avro-file"): {"format": "avro", "schema_file": str(tmp_path / "row.avsc")},
        topic("proto-file"): {
            "format": "protobuf", "schema_file": str(tmp_path / "row.desc"), "message": "shop.Row"
        },
        topic("avro"): {"format": "avro", "registry": "registry"},
        topic("proto"): {"format": "protobuf", "registry": "registry"},
        topic("json-schema"): {"format": "json", "registry": "registry"},
    }  # fmt: skip
    values = [
        [b'{"id":1,"name":"a","amount":1.5}', b"{"],
        [json.dumps({"schema": CONNECT, "payload": {"id": 2, "name": "b", "amount": 2.5}}).encode(), b"{}"],
        [encoded(AVRO, {"id": 3, "name": "c", "amount": 3.5}), b"\x01"],
        [proto(descriptors, id=4, name="d", amount=4.5), b"\x08"],
        [encoded(OLDER, {"id": 5, "amount": 0.5}, ids[0]), encoded(AVRO, {"id": 6, "name": "f", "amount": 1}, ids[1]),
         framed(999_999, b"\x02")],
        [framed(ids[2], b"\x02\x02" + proto(descriptors, id=7, name="g", amount=7.5)), framed(ids[3], b"\x00")],
        [framed(ids[3], b'{"id":8,"name":"h","amount":8.5}'), b'{"id":9}'],
    ]  # fmt: skip
    engine = Engine(flow(encodings), with_registry(connections, registry), spark)
    produce(connections, dict(zip(encodings, values, strict=True)))
    landed = engine.advance()
    assert [(b.counts.read, b.counts.landed, b.counts.quarantined) for b in landed] == [(15, 8, 7)]
    assert engine.read("append") == [
        (1, "a", 1.5), (2, "b", 2.5), (3, "c", 3.5), (4, "d", 4.5), (5, None, 0.5), (6, "f", 1.0), (7, "g", 7.5),
        (8, "h", 8.5),
    ]  # fmt: skip
    errors = spark.table(".".join(engine.pipeline.intermediate.path)).where("error is not null")
    kinds = [row["kind"] for row in errors.select("error.kind").collect()]
    assert sorted(kinds) == ["schema", "schema", *["undecodable"] * 5]


def test_fields_with_dots_in_their_names_are_columns(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    name, columns = topic("dots"), {"order.id": "long not null", "http.status": "long", "s": "struct<`x.y`: long>"}
    source = {
        "topics": [name],
        "key": {"format": "json", "columns": {"order.id": "long"}},
        "value": {"format": "json", "columns": columns, "unknown_fields": "add"},
    }
    changes = {"key": {"columns": ["order.id"]}}
    modes = ["append", "upsert_delete"]
    engine = Engine(Flow(name, modes, overrides={"source": source, "changes": changes}), connections, spark)
    rows: list[dict[str, Any]] = [
        {"order.id": 1, "http.status": 500, "status": 1, "s": {"x.y": 5, "y": 6}, "http.path": "/a"},
        {"order.id": 1, "http.status": 200, "status": 2, "s": {"x.y": 7, "y": 8}, "http.path": "/b"},
        {"order.id": 2, "http.status": 404, "status": 3, "s": {"x.y": 9, "y": 0}, "http.path": "/c"},
    ]
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for row in rows:
        producer.produce(name, key=json.dumps({"order.id": row["order.id"]}), value=json.dumps(row))
    assert producer.flush(PATIENCE) == 0
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.quarantined) == (3, 0)
    assert engine.replay("upsert_delete", 1, 1)
    for mode, expected in {"append": rows, "upsert_delete": rows[1:]}.items():
        found = catalog(connections).require(engine.flow.table(mode)).scan().to_arrow().to_pylist()
        assert sorted(found, key=lambda row: row["status"]) == expected


def test_newer_schema_of_a_registry_brings_its_fields(
    connections: Connections,
    spark: SparkSession,
    topic: Callable[..., str],
    registry: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Left out and reported at first, then as columns: of the same records, each by its own schema."""
    name = topic("orders")
    newer = record(
        ("id", "long"), ("name", ["null", "string"]), ("amount", "double"), ("paid", ["null", "boolean"]),
        ("at", {"type": "record", "name": "At", "fields": [{"name": "city", "type": "string"}]}), name="Row",
    )  # fmt: skip
    ids = [register(registry, f"{name}-value", text(AVRO)), register(registry, f"{name}-newer", text(newer))]
    older_row = {"id": 1, "name": "a", "amount": 1.5}
    values = [
        encoded(AVRO, older_row, ids[0]),
        encoded(newer, {"id": 2, "name": "b", "amount": 2.5, "paid": True, "at": {"city": "x"}}, ids[1]),
    ]
    engine = Engine(
        flow({name: {"format": "avro", "registry": "registry"}}), with_registry(connections, registry), spark
    )
    produce(connections, {name: values})
    landed = engine.advance()
    assert [batch.unknown for batch in landed] == [{"at": 1, "paid": 1}]
    assert "no column takes these fields of records, and they are left out: at (1), paid (1)" in caplog.text

    adding = engine.with_value(unknown_fields="add")
    produce(connections, {name: values})
    assert [(b.unknown, b.counts.landed) for b in adding.advance()] == [({}, 2)]
    assert adding.pipeline.spec.source.value.columns == {**COLUMNS, "at": "struct<city: text>", "paid": "boolean"}
    table = catalog(connections).require(engine.flow.table("append")).scan(selected_fields=("id", "paid", "at"))
    rows = sorted(map(str, table.to_arrow().to_pylist()))
    assert rows == sorted(map(str, [
        {"id": 1, "at": None, "paid": None}, {"id": 1, "at": None, "paid": None},
        {"id": 2, "at": None, "paid": None}, {"id": 2, "at": {"city": "x"}, "paid": True},
    ]))  # fmt: skip


def test_infer_asks_topic_and_registry(
    connections: Connections, topic: Callable[..., str], registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic("inferred", partitions=3)
    schema_id = register(registry, f"{name}-value", text(AVRO))
    produce(connections, {name: [encoded(AVRO, {"id": n, "name": "a", "amount": 1}, schema_id) for n in range(20)]}, 3)
    monkeypatch.setattr(infer_command, "load_connections", lambda: with_registry(connections, registry))
    done = CliRunner().invoke(infer_command.infer, [name, "--registry", "registry", "--records", "9"])
    assert done.exit_code == 0, done.output
    assert "9 of its newest records" in done.output
    source = yaml.safe_load(done.output)["source"]
    assert source["value"] == {"format": "avro", "registry": "registry", "columns": {
        "id": "long not null", "name": "string", "amount": "double not null"}}  # fmt: skip
    assert "key" not in source


def test_registry_that_is_down_lands_nothing_until_it_is_back(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], registry: str
) -> None:
    down = SchemaRegistryConnection(kind="schema_registry", url="http://127.0.0.1:9/apis", timeout_seconds=5)
    name = topic("avro")
    engine = Engine(
        flow({name: {"format": "avro", "registry": "registry"}}),
        with_connection(connections, "registry", down),
        spark,
    )
    schema_id = register(registry, f"{name}-value", text(AVRO))
    produce(connections, {name: [encoded(AVRO, {"id": 1, "name": "a", "amount": 1}, schema_id)]})
    with pytest.raises(Unavailable, match=r"schema registry registry: .* does not answer"):
        engine.advance()
    assert engine.pipeline.intermediate.committed() is None
    back = Engine(engine.flow, with_registry(connections, registry), spark)
    assert [b.number for b in back.advance()] == [1]
    assert back.read("append") == [(1, "a", 1.0)]


ORDER = """syntax = "proto3"; package shop;
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { string sku = 1; optional int32 count = 2; }
  int64 id = 1; optional string name = 2; State state = 3; Line first = 4; repeated Line lines = 5;
  map<string, double> sums = 6; uint64 big = 7;
}"""
NEWER_ORDER = ORDER.replace("uint64 big = 7;", "uint64 big = 7; optional bool paid = 8;")
ORDER_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "state": {"enum": ["NEW", "PAID"]},
        "first": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        "at": {"type": "string", "format": "date-time"},
    },
}
NEWER_ORDER_SCHEMA = {**ORDER_SCHEMA, "properties": {**ORDER_SCHEMA["properties"], "paid": {"type": "boolean"}}}  # type: ignore[dict-item]


def an_order(schema: str, schema_id: int, **fields: Any) -> bytes:
    made = message_class(Messages(compiled((schema,), ("",))).named("shop.Order"))(**fields)
    return framed(schema_id, b"\x00" + made.SerializeToString())


def test_protobuf_of_a_registry_brings_all_columns(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], registry: str
) -> None:
    name = topic("orders-proto")
    older, newer = (register(registry, f"{name}-{n}", text, "PROTOBUF") for n, text in enumerate((ORDER, NEWER_ORDER)))
    first = an_order(
        ORDER, older, id=1, name="a", state=1, first={"sku": "x", "count": 2}, sums={"k": 0.5}, big=2**64 - 1
    )
    second = an_order(NEWER_ORDER, newer, id=2, lines=[{"sku": "y"}, {"sku": "z", "count": 3}], paid=True)
    engine, rows = without_columns(name, {"format": "protobuf"}, with_registry(connections, registry), spark)
    produce(connections, {name: [first]})
    assert [(b.counts.landed, b.counts.quarantined) for b in engine.advance()] == [(1, 0)]
    produce(connections, {name: [second, framed(newer, b"\x00\xff"), first]})
    assert [(b.counts.landed, b.counts.quarantined) for b in engine.advance()] == [(2, 1)]
    assert engine.pipeline.spec.source.value.columns == {
        "id": "long", "name": "text", "state": "text", "first": "struct<sku: text, count: int>",
        "lines": "array<struct<sku: text, count: int>>", "sums": "map<string,double>", "big": "decimal(20,0)",
        "paid": "boolean",
    }  # fmt: skip
    one = {"id": 1, "name": "a", "state": "PAID", "first": {"sku": "x", "count": 2}, "lines": [], "sums": [("k", 0.5)],
           "big": Decimal(2**64 - 1), "paid": None}  # fmt: skip
    two = {"id": 2, "name": None, "state": "NEW", "first": None,
           "lines": [{"sku": "y", "count": None}, {"sku": "z", "count": 3}], "sums": [], "big": Decimal(0),
           "paid": True}  # fmt: skip
    assert rows() == [one, one, two]


def test_json_schema_of_a_registry_brings_all_columns(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], registry: str
) -> None:
    name = topic("orders-json")
    schemas = (ORDER_SCHEMA, NEWER_ORDER_SCHEMA)
    older, newer = (register(registry, f"{name}-{n}", json.dumps(s), "JSON") for n, s in enumerate(schemas))
    first = {"id": 1, "name": "a", "state": "PAID", "first": {"sku": "x", "count": 2}, "at": "2026-01-02T03:04:05Z"}
    second = {"id": 2, "lines": [{"sku": "y"}, {"sku": "z"}], "paid": True}
    engine, rows = without_columns(name, {"format": "json"}, with_registry(connections, registry), spark)
    produce(connections, {name: [framed(older, json.dumps(first).encode())]})
    assert [(b.counts.landed, b.counts.quarantined) for b in engine.advance()] == [(1, 0)]
    produce(connections, {name: [framed(newer, json.dumps(second).encode()), framed(newer, b'{"id": "none"}'), b"{}"]})
    assert [(b.counts.landed, b.counts.quarantined) for b in engine.advance()] == [(1, 2)]
    assert engine.pipeline.spec.source.value.columns == {
        "id": "long", "name": "text", "state": "text", "first": "struct<sku: text, count: long>",
        "lines": "array<struct<sku: text>>", "at": "timestamp", "paid": "boolean",
    }  # fmt: skip
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert rows() == [
        {**first, "lines": None, "at": at, "paid": None},
        {"id": 2, "name": None, "state": None, "first": None, "lines": second["lines"], "at": None, "paid": True},
    ]


def without_columns(
    name: str, value: dict[str, Any], connections: Connections, spark: SparkSession
) -> tuple[Engine, Callable[[], list[dict[str, Any]]]]:
    """A pipeline whose columns the records bring; and what its table has, by id."""
    source = {"topics": [name], "value": {**value, "registry": "registry"}}
    engine = Engine(Flow(name, ["append"], overrides={"source": source, "changes": {}}), connections, spark)

    def rows() -> list[dict[str, Any]]:
        found = catalog(connections).require(engine.flow.table("append")).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: int(row["id"]))

    return engine, rows

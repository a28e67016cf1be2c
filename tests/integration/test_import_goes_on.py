"""Tables that a sink has filled go on: a table as the sink's users make it, the import, then a run into it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer
from google.cloud.bigquery import SchemaField, Table
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, ListType, LongType, NestedField, StringType, TimestamptzType, UUIDType
from pyspark.sql import SparkSession

from orchestration.cli.connect_import import import_
from resources.connections import Connections, KafkaConnection
from resources.kafka import KafkaCluster
from resources.kafka_groups import commit_group
from resources.topic_partition import TopicPartition
from tests.kit import bigquery, clickhouse
from tests.kit.connectors import chain
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE

JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "errors.tolerance": "all",
}


class Sink:
    """A connector that was stopped, and its topic."""

    def __init__(self, connections: Connections, topic: str, options: Mapping[str, str]) -> None:
        self.connections, self.topic = connections, topic
        self.name = f"sink-{uuid.uuid4().hex[:8]}"
        self.options = {"topics": topic, **JSON, **options}

    def produce(self, *records: tuple[object, object]) -> None:
        """Produces keys and values as JSON."""
        producer = Producer({"bootstrap.servers": bootstrap(self.connections)})
        for record in records:
            key, value = (None if part is None else json.dumps(part) for part in record)
            producer.produce(self.topic, value, key)
        assert producer.flush(PATIENCE) == 0

    def has_written(self, records: int) -> None:
        kafka = KafkaCluster("kafka", self.connections.get("kafka", KafkaConnection))
        commit_group(kafka, f"connect-{self.name}", {TopicPartition(self.topic, 0): records})

    def imported(self, folder: Path, *more: str) -> tuple[dict[str, Any], str]:
        """The pipeline file that `batchmerge import` writes, and what it says to do."""
        path = folder / "connector.json"
        path.write_text(json.dumps({"name": self.name, "config": self.options}))
        output = CliRunner().invoke(import_, [str(path), *more], catch_exceptions=False).output
        assert "\ntype: " in output, output
        return yaml.safe_load("type: " + output.split("\ntype: ")[1])["attributes"], output


def run(flow: Flow, connections: Connections, spark: SparkSession, document: dict[str, object], records: int) -> None:
    """Lands and merges all that there is; nothing may become a dead letter."""
    engine = Engine(flow, connections, spark, document)
    landed = engine.land()
    found = catalog(connections).require(f"landing.{flow.name}_tmp").scan(selected_fields=("error",)).to_arrow()
    assert [error for error in found["error"].to_pylist() if error] == []
    engine.merge_all()
    assert [(batch.counts.quarantined, batch.counts.landed) for batch in landed] == [(0, records)]


@pytest.mark.usefixtures("clickhouse")
def test_table_of_the_clickhouse_sink(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], tmp_path: Path
) -> None:
    flow = Flow(topic(), ["append"])
    table = flow.table("append")
    options = {
        "connector.class": "com.clickhouse.kafka.connect.ClickHouseSinkConnector",
        "database": "tests",
        "topic2TableMap": f"{flow.topic}={table.split('.')[1]}",
    }
    sink = Sink(connections, flow.topic, options)
    (server,) = clickhouse.servers(connections)
    server.execute("CREATE DATABASE IF NOT EXISTS tests")
    server.execute(
        f"CREATE TABLE {table} (id Int64, name String, count UInt32, at DateTime, country LowCardinality(String), "
        "note Nullable(String), tags Array(String), day Date DEFAULT toDate(at), doubled Int64 ALIAS id * 2, "
        "seen DateTime DEFAULT now()) ENGINE MergeTree ORDER BY (id, at)"
    )
    server.execute(
        f"INSERT INTO {table} (id, name, count, at, country) VALUES (1, 'a', 7, '2026-01-01 00:00:00', 'CH')"
    )
    row = {"name": "b", "count": 4_000_000_000, "at": "2026-01-02T03:04:05Z", "country": "DE"}
    sink.produce((None, {"id": 1}), (None, {"id": 2, **row, "tags": ["x"], "unknown": 1}), (None, {"id": 3, **row}))
    sink.has_written(1)
    document, output = sink.imported(tmp_path)
    change = next(line for line in output.splitlines() if "ALTER TABLE" in line)
    server.execute(change[change.index("ALTER TABLE") :])
    run(flow, connections, spark, document, 2)
    columns = "id, name, count, at, country, note, tags, day, _offset"
    found = server.rows(f"SELECT {columns.replace('at,', 'toString(at) AS at,', 1)} FROM {table} ORDER BY id")
    assert [tuple(row.values())[:7] for row in found] == [
        (1, "a", 7, "2026-01-01 00:00:00", "CH", None, []),
        (2, "b", 4_000_000_000, "2026-01-02 03:04:05", "DE", None, ["x"]),
        (3, "b", 4_000_000_000, "2026-01-02 03:04:05", "DE", None, []),
    ]
    assert [(str(row["day"]), row["_offset"]) for row in found] == [
        ("2026-01-01", None),
        ("2026-01-02", 1),
        ("2026-01-02", 2),
    ]
    types = {row["name"]: row["type"] for row in server.rows(f"DESCRIBE TABLE {table}")}
    assert [types[n] for n in ("id", "name", "count", "at")] == ["Int64", "String", "UInt32", "DateTime"]


# Which the first run adds to append tables, so that their rows show their records.
COORDINATES = ["_topic", "__partition", "_offset"]
MASKED = chain(("org.apache.kafka.connect.transforms.MaskField$Value", {"fields": "name", "replacement": "*"}))

REF = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"


CDC = {"iceberg.tables.cdc-field": "op", "iceberg.tables.evolve-schema-enabled": "false"}


@pytest.mark.parametrize(
    ("mode", "more", "name"), [("upsert", {}, "b"), ("upsert_delete", CDC, "b"), ("append", MASKED, "*")]
)
def test_table_of_the_iceberg_sinks(
    mode: str,
    more: dict[str, str],
    name: str,
    connections: Connections,
    spark: SparkSession,
    topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    flow = Flow(topic(), [mode])
    table = flow.table(mode)
    options = {
        "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector",
        "iceberg.tables": table,
        "iceberg.tables.upsert-mode-enabled": str(mode == "upsert").lower(),
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.control.topic": f"none-{flow.name}",
        **more,
    }
    sink = Sink(connections, flow.topic, options)
    fields = [
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType(), required=True),
        NestedField(3, "price", DecimalType(10, 2)),
        NestedField(4, "at", TimestamptzType()),
        NestedField(5, "tags", ListType(6, StringType(), element_required=True)),
        NestedField(7, "ref", UUIDType()),
    ]
    made = catalog(connections).create(
        table, Schema(*fields, identifier_field_ids=[1]), properties={"format-version": "2"}
    )
    before = made.schema()
    made.append(pa.Table.from_pylist([{"id": 1, "name": "a"}, {"id": 2, "name": "a"}], made.schema().as_arrow()))
    row = {"name": "b", "price": "1.50", "at": "2026-01-02T03:04:05Z", "tags": ["x"], "ref": REF.upper()}
    changed = {"id": 2, **row, **({"op": "Update"} if more is CDC else {})}
    # The table requires more columns than a delete has.
    gone = [(None, {"id": 4, **row}), (None, {"id": 4, "op": "D"})] if more is CDC else []
    sink.produce((None, {"id": 1}), (None, changed), (None, {"id": 3, **row}), *gone)
    sink.has_written(1)
    document, output = sink.imported(tmp_path)
    assert f"{table}: ref" not in output
    assert document["source"]["value"]["columns"]["ref"] == "uuid"
    run(flow, connections, spark, document, 2 + len(gone))
    after = catalog(connections).require(table)
    kept = len(before.fields)
    assert (after.schema().fields[:kept], after.schema().identifier_field_ids) == (before.fields, [1])
    assert [field.name for field in after.schema().fields[kept:]] == (COORDINATES if mode == "append" else [])
    found = after.scan(selected_fields=("id", "name", "price", "tags", "ref")).to_arrow().sort_by([("id", "ascending")])
    first, *rest = [tuple(map(str, line.values())) for line in found.to_pylist()]
    assert first == ("1", "a", "None", "None", "None")
    old = [("2", "a", "None", "None", "None")] if mode == "append" else []
    assert sorted(rest) == sorted([*old, *((n, name, "1.50", "['x']", REF) for n in ("2", "3"))])


@pytest.mark.usefixtures("bigquery")
@pytest.mark.parametrize("mode", ["upsert_delete", "append"])
def test_table_of_the_bigquery_sinks(
    mode: str, connections: Connections, spark: SparkSession, topic: Callable[..., str], tmp_path: Path
) -> None:
    flow = Flow(topic(), [mode])
    table, service = flow.table(mode), bigquery.service(connections)
    options = {
        "connector.class": "com.wepay.kafka.connect.bigquery.BigQuerySinkConnector",
        "project": service.connection.project,
        "defaultDataset": "tests",
        "topic2TableMap": f"{flow.topic}:{table.split('.')[1]}",
        "kafkaKeyFieldName": "kafkaKey",
        "kafkaDataFieldName": "kafkaData",
        "upsertEnabled": str(mode != "append").lower(),
        "deleteEnabled": str(mode != "append").lower(),
        "autoCreateTables": "false",
        "mergeRecordsThreshold": "1",
    }
    sink = Sink(connections, flow.topic, options)
    parts = [("topic", "STRING"), ("partition", "INTEGER"), ("offset", "INTEGER"), ("insertTime", "TIMESTAMP")]
    where = [SchemaField("country", "STRING", "REQUIRED"), SchemaField("zip", "STRING")]
    pair = [SchemaField("key", "STRING", "REQUIRED"), SchemaField("value", "INTEGER")]
    schema = [
        SchemaField("id", "INTEGER", "REQUIRED"),
        SchemaField("name", "STRING"),
        SchemaField("price", "NUMERIC"),
        SchemaField("address", "RECORD", fields=where),
        SchemaField("tags", "STRING", "REPEATED"),
        SchemaField("sizes", "RECORD", "REPEATED", fields=pair),
        SchemaField("kafkaKey", "RECORD", fields=[SchemaField("id", "INTEGER", "REQUIRED")]),
        SchemaField("kafkaData", "RECORD", fields=[SchemaField(*part) for part in parts]),
    ]
    service.create_dataset("tests")
    before = service.create_table(Table(service.table_id(table), schema)).schema
    text = f"INSERT INTO `{table}` (id, name, kafkaKey) SELECT id, 'a', STRUCT(id) FROM UNNEST([1, 2]) AS id"
    service.change(text, {}, "test")
    row = {"name": "b", "price": "1.5", "address": {"country": "CH"}, "tags": ["x"], "sizes": {"m": 1}}
    last = ({"id": 3}, {"id": 3, **row}) if mode == "append" else ({"id": 1}, None)
    sink.produce(({"id": 1}, {"id": 1}), ({"id": 2}, {"id": 2, **row}), last)
    sink.has_written(1)
    document, _ = sink.imported(tmp_path)
    run(flow, connections, spark, document, 2)
    found = service.find_table(table)
    assert found is not None
    assert found.schema[: len(before)] == before
    assert [field.name for field in found.schema[len(before) :]] == (COORDINATES if mode == "append" else [])
    columns = "id, name, price, address.country, tags, sizes, kafkaKey.id AS k, kafkaData.offset AS o"
    rows = [tuple(line.values()) for line in bigquery.select(connections, f"SELECT {columns} FROM `{table}`")]
    new = [(n, "b", Decimal("1.5"), "CH", ["x"], [{"key": "m", "value": 1}], n, n - 1) for n in (2, 3)]
    old = [str((n, "a", None, None, [], [], n, None)) for n in (1, 2)]
    assert sorted(map(str, rows)) == sorted([*old, *map(str, new)] if mode == "append" else [str(new[0])])

"""Taking over where a connector stopped: consumer groups, events and snapshots of Iceberg sinks, state in KeeperMap."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

from jobs.connect_import import building, offsets
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.sink import sink_of
from jobs.connect_import.writing import pipeline_file
from jobs.destinations.clickhouse.connect_offsets import after_keeper_state, keeper_rows
from jobs.landing.transform import analyse
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli.connect_import import import_
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections
from resources.errors import SourceError, Unavailable
from resources.kafka_groups import commit_group
from resources.topic_partition import TopicPartition
from tests.kit.connect_events import event
from tests.kit.connectors import CASES, COLUMNS, ICEBERG, KAFKA, chain
from tests.kit.engine import Engine, catalog
from tests.kit.events import cluster
from tests.kit.flow import Flow
from tests.kit.records import Record, bootstrap, produce
from tests.kit.waiting import PATIENCE

APACHE = "org.apache.iceberg.connect.IcebergSinkConnector"
BIGQUERY = "com.wepay.kafka.connect.bigquery.BigQuerySinkConnector"
TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"


def test_group_offsets_are_taken_over_when_the_connector_is_stopped(
    connections: Connections, topic: Callable[..., str]
) -> None:
    source, name = topic(partitions=3), f"sink-{uuid.uuid4().hex[:8]}"
    kafka, here = cluster(connections), Configuration(name, {"connector.class": BIGQUERY})
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for n in range(30):
        producer.produce(source, b"x", partition=n % 3)
    assert producer.flush(PATIENCE) == 0
    commit_group(kafka, f"connect-{name}", {TopicPartition(source, 0): 4, TopicPartition(source, 1): 10})
    partitions = [TopicPartition(source, p) for p in range(3)]
    found = offsets.stopped_at(kafka, here, connections, partitions)
    assert found.next == {(source, 0): 4, (source, 1): 10, (source, 2): 0}
    assert str(found) == f"2 partitions, at their first record: {source}-2"
    # Tabular's own group is newer than Connect's; a partition that neither has begins where the sink would.
    own = {"connector.class": TABULAR, "consumer.override.auto.offset.reset": "latest"}
    commit_group(kafka, f"cg-control-{name}", {TopicPartition(source, 0): 6})
    found = offsets.committed(kafka, Configuration(name, own), partitions)
    assert found.next == {(source, 0): 6, (source, 1): 10, (source, 2): 10}
    assert str(found) == f"2 partitions, at their end: {source}-2"

    running = Consumer({"bootstrap.servers": bootstrap(connections), "group.id": f"connect-{name}"})
    try:
        running.subscribe([source])
        while not running.assignment():
            running.poll(0.2)
        with pytest.raises(Unavailable, match="still running"):
            offsets.committed(kafka, here, partitions)
    finally:
        running.close()


def test_group_that_kafka_has_forgotten_is_no_place_to_begin(
    connections: Connections, topic: Callable[..., str]
) -> None:
    source, name = topic(), f"sink-{uuid.uuid4().hex[:8]}"
    kafka, here = cluster(connections), Configuration(name, {"connector.class": BIGQUERY})
    partitions = [TopicPartition(source, 0)]
    assert offsets.stopped_at(kafka, here, connections, partitions).next == {(source, 0): 0}, "nothing to commit"
    produce(bootstrap(connections), source, [Record(0, 1, {"id": 1})])
    with pytest.raises(SourceError, match=r"connect-sink-\w+: the group has no offsets, .* Fix: start the connector"):
        offsets.stopped_at(kafka, here, connections, partitions)


def test_imported_pipeline_begins_where_the_connector_stopped(
    connections: Connections, topic: Callable[..., str], tmp_path: Path
) -> None:
    source, name = topic(), f"sink-{uuid.uuid4().hex[:8]}"
    table = f"tests.moved_{uuid.uuid4().hex[:8]}"
    fields = [NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())]
    catalog(connections).create(table, Schema(*fields))
    produce(bootstrap(connections), source, [Record(0, n, {"id": n, "name": "a"}) for n in range(5)])
    commit_group(cluster(connections), f"connect-{name}", {TopicPartition(source, 0): 3})
    options = {
        "connector.class": APACHE,
        "topics": source,
        "iceberg.tables": table,
        "iceberg.control.topic": f"none-{name}",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
    }
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({"name": name, "config": options}))
    result = CliRunner().invoke(import_, [str(path)], catch_exceptions=False)
    document = yaml.safe_load("type: " + result.output.split("\ntype: ")[1])["attributes"]
    assert document["source"]["start"] == {"offsets": {source: {0: 3}}}
    assert document["source"]["value"]["columns"] == {"id": "long not null", "name": "text"}
    pipeline = Pipeline(f"p_{uuid.uuid4().hex[:8]}", PipelineSpec.model_validate(document), connections)
    batch = pipeline.plan_batch(None, pipeline.topic_state())
    assert batch is not None
    assert {str(tp): (r.start, r.end) for tp, r in batch.ranges.items()} == {f"{source}-0": (3, 5)}


def test_files_that_no_snapshot_has_are_not_lost(connections: Connections, topic: Callable[..., str]) -> None:
    control, name = topic("control"), f"sink-{uuid.uuid4().hex[:8]}"
    here = Configuration(name, {"connector.class": APACHE, "iceberg.control.topic": control})
    lake, kafka, group = catalog(connections), cluster(connections), f"connect-{name}"
    table = f"tests.moved_{uuid.uuid4().hex[:8]}"
    made = lake.create(table, Schema(NestedField(1, "id", LongType())))
    producer = Producer({"bootstrap.servers": bootstrap(connections)})

    def say(*events: bytes) -> None:
        for one in events:
            producer.produce(control, one)
        assert producer.flush(PATIENCE) == 0

    say(event(group, table, ["a"]), event(group, table, None), event("somebody-else", table, ["z"]))
    with pytest.raises(SourceError, match="no snapshot"):
        sink_of(here).stopped_at(kafka, connections, {})
    offsets = {f"kafka.connect.offsets.{control}.{group}": json.dumps({"0": 3})}
    made.append(pa.table({"id": pa.array([1], pa.int64())}), snapshot_properties=offsets)
    lake.require(table).append(pa.table({"id": pa.array([2], pa.int64())}))  # by somebody else, without offsets
    sink_of(here).stopped_at(kafka, connections, {})
    say(event(group, table, None, kind=2), event(group, table, ["b"]))
    with pytest.raises(SourceError, match=f"offset 4 of {control}-0"):
        sink_of(here).stopped_at(kafka, connections, {})
    # The sink's mark of a commit to all tables counts where maintenance has removed the snapshot of it.
    commit_group(kafka, f"{group}-coord", {TopicPartition(control, 0): 5})
    sink_of(here).stopped_at(kafka, connections, {})
    say(event(group, table, ["c"]))
    with pytest.raises(SourceError, match=f"offset 5 of {control}-0"):
        sink_of(here).stopped_at(kafka, connections, {})


@pytest.mark.usefixtures("clickhouse")
def test_state_of_the_clickhouse_sink_counts(connections: Connections) -> None:
    connection = connections.get("clickhouse", ClickHouseConnection)
    server = ClickHouseServer("clickhouse", connection, connection.endpoints[0])
    table = f"connect.state_{uuid.uuid4().hex[:8]}"
    server.execute(
        f"CREATE TABLE `{table}` (`key` String, minOffset BIGINT, maxOffset BIGINT, state String) "
        f"ENGINE = KeeperMap('/{table}') PRIMARY KEY `key`"
    )
    try:
        server.execute(f"INSERT INTO `{table}` VALUES ('a-b-0', 0, 99, 'AFTER_PROCESSING')")
        given = {TopicPartition("a-b", 0): 50, TopicPartition("a-b", 1): 7}
        rows = keeper_rows(server, table)
        assert after_keeper_state(given, rows, "here", str) == {("a-b", 0): 100, ("a-b", 1): 7}
        server.execute(f"INSERT INTO `{table}` VALUES ('a-b-1', 7, 12, 'BEFORE_PROCESSING')")
        with pytest.raises(SourceError, match="offset 12"):
            after_keeper_state(given, keeper_rows(server, table), "here", str)
    finally:
        server.execute(f"DROP TABLE `{table}` SYNC")


@pytest.mark.parametrize("case", CASES)
def test_spark_accepts_the_statement_of_a_chain(case: str, spark: SparkSession) -> None:
    options, _, _ = CASES[case]
    imported = building.build(Configuration("sink", {**ICEBERG, **options}), COLUMNS)
    spec = PipelineSpec.model_validate(yaml.safe_load(pipeline_file(imported))["attributes"])
    analyse(spark, spec.source)


def test_an_unwrapping_connector_becomes_a_pipeline_that_runs(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    name = topic()
    unwrap = (
        "io.debezium.transforms.ExtractNewRecordState",
        {"add.fields": "lsn", "delete.tombstone.handling.mode": "rewrite"},
    )
    mask = (KAFKA + "MaskField$Value", {"fields": "card", "replacement": "***"})
    cast = (KAFKA + "Cast$Value", {"spec": "price:float64"})
    flow = Flow(name, ["upsert_delete"])
    configuration = {
        **ICEBERG,
        **chain(unwrap, mask, cast),
        "connector.class": TABULAR,
        "topics": name,
        "iceberg.tables": flow.table("upsert_delete"),
        "iceberg.tables.default-id-columns": "id",
        "iceberg.tables.cdc-field": "__op",
        "iceberg.tables.auto-create-enabled": "true",
    }
    columns = {"id": "long", "card": "string", "price": "string", "__lsn": "long"}
    imported = building.build(Configuration("sink", configuration), columns)
    assert [line.split(":")[0] for line in imported.todo] == ["source.value.envelope", "changes.order_by"]
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    row = {"id": 1, "card": "secret", "price": "2.5"}
    other = {**row, "id": 2}
    changes = [("c", None, row), ("c", None, other), ("u", row, {**row, "price": "3"}), ("d", other, None)]
    for lsn, (op, old, new) in enumerate(changes):
        producer.produce(name, json.dumps({"op": op, "before": old, "after": new, "source": {"lsn": lsn}}).encode())
    assert producer.flush(PATIENCE) == 0
    Engine(flow, connections, spark, imported.document).advance()
    found = catalog(connections).require(flow.table("upsert_delete")).scan().to_arrow().to_pylist()
    assert found == [{"id": 1, "card": "***", "price": 3.0, "__lsn": 2}]

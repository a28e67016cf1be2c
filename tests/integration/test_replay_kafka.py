"""Replay from Kafka and `batchmerge replay` in all its forms, on a real broker and real tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from resources.connections import Connections
from tests.kit.command import Command
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.records import Record, bootstrap, produce

COORDINATES = {"metadata_columns": ["topic", "partition", "offset"]}


def put(key: int, name: str, op: str = "u") -> Record:
    return Record(key % 2, key, {"id": key, "name": name, "amount": float(key), "op": op})


def test_forms_and_refusals(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, batchmerge: Command
) -> None:
    flow = Flow(topic(partitions=2), ["append"])
    engine, servers = Engine(flow, connections, spark), bootstrap(connections)
    produce(servers, flow.topic, [put(n, "a") for n in range(10)])
    engine.advance()
    place = f"{flow.topic}-0"
    for arguments, code, sentence in [
        ([], 2, "give one of --from, --batches, --kafka-from, --kafka-offsets"),
        (["--batches", "1", "--from", "2026-01-01"], 2, "give one of"),
        (["--batches", "x"], 2, "--batches is a number or a range"),
        (["--batches", "3-2"], 2, "--batches is a number or a range"),
        (["--from", "2026-01-02", "--table", flow.table("append")], 2, "--from replays into all tables"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], 2, "is before --from"),
        (["--from", "2020-01-01"], 2, "the pipeline's first hour is"),
        (["--kafka-from", "2026-01-02", "--kafka-to", "2026-01-01"], 2, "--kafka-to is not after"),
        (["--batches", "1", "--what-is-left"], 2, "--what-is-left to --kafka-from"),
        (["--batches", "1", "--table", "no.such"], 2, "has no table 'no.such'"),
        (["--kafka-offsets", "nonsense"], 2, "is not TOPIC-PARTITION=OFFSET"),
        (["--batches", "1"], 2, "can be replayed only by its rows' coordinates"),
    ]:
        found, output = batchmerge(engine, "replay", "", *arguments)
        assert (found, sentence in output) == (code, True), (arguments, output)
    flow.table_options = COORDINATES
    engine = engine.edited(tables=flow.spec_document["tables"])
    catalog(connections).drop(flow.table("append"))
    engine.merge("append")
    for arguments in (["--batches", "7"], ["--kafka-offsets", f"{place}=5"]):
        found, output = batchmerge(engine, "replay", "", *arguments)
        assert (found, "nothing to replay" in output) == (0, True), output
    client = AdminClient({"bootstrap.servers": servers})
    for pending in client.delete_records([KafkaPartition(flow.topic, 0, 3)]).values():
        pending.result(timeout=30)
    found, output = batchmerge(engine, "replay", "", "--kafka-offsets", f"{place}=1:4")
    assert (found, "Kafka has only 3 to 5" in output) == (2, True), output
    found, output = batchmerge(engine, "replay", "", "--kafka-from", "2020-01-01")
    assert (found, "--what-is-left" in output) == (2, True), output
    gone = engine.read("append")
    catalog(connections).require(flow.table("append")).delete("_offset >= 3")
    found, output = batchmerge(engine, "replay", "", "--kafka-from", "2020-01-01", "--what-is-left")
    assert (found, "read from Kafka again: 7 offsets" in output) == (0, True), output
    assert engine.read("append") == gone
    found, output = batchmerge(
        engine, "replay", "", "--kafka-from", "2020-01-01", "--kafka-to", "2020-01-02", "--what-is-left"
    )
    assert (found, "nothing to replay" in output) == (0, True), output


@pytest.mark.slow
def test_of_many_partitions_with_dead_letters(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, batchmerge: Command
) -> None:
    """More of them than a condition on the dead letters may have terms, in what Spark's client sends."""
    many = 200
    flow = Flow(topic(partitions=many), ["upsert"])
    engine = Engine(flow, connections, spark)
    records = [Record(n, n, {"id": n, "name": "a", "amount": 1.0, "op": "u"}) for n in range(many)]
    produce(bootstrap(connections), flow.topic, [*records, *(Record(n, n, "{") for n in range(0, many, 50))])
    engine.advance()
    before = engine.read("upsert")
    assert len(before) == many
    found, output = batchmerge(engine, "replay", "", "--kafka-from", "2020-01-01")
    assert (found, f"read from Kafka again: {many + 4} offsets" in output) == (0, True), output
    assert engine.pipeline.intermediate.landed().batches[-1].counts.recovered == 4
    assert engine.read("upsert") == before


def test_by_hours_as_a_run_of_dagster(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, batchmerge: Command
) -> None:
    flow = Flow(topic(partitions=2), ["upsert"])
    engine = Engine(flow, connections, spark)
    today = datetime.now(UTC).strftime("%Y-%m-%dT00")
    produce(bootstrap(connections), flow.topic, [put(n, "a") for n in range(4)])
    engine.advance()
    before = engine.read("upsert")
    catalog(connections).require(flow.table("upsert")).delete("id = 2")
    code, output = batchmerge(engine, "replay", "", "--from", today)
    assert (code, "merged again: batch 1, landed 20" in output) == (0, True), output
    assert engine.read("upsert") == before
    code, output = batchmerge(engine, "replay", "", "--batches", "1", "--json")
    assert (code, '"changes":' in output) == (0, True), output

"""The control topic on a real broker: transactions, fencing, groups, a bounded reader, and Avro for everybody."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from py4j.java_gateway import JavaGateway

from jobs.events.messages import (
    CommitComplete,
    CommitTable,
    encode,
    make_event,
)
from jobs.events.reading import read_events
from resources.connections import Connections, KafkaConnection
from resources.control_topic import ControlWriter, GroupProgress, Message
from resources.errors import ConfigurationError, Interrupted, TopicMissing, Unavailable
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_metadata, group_offsets
from resources.local.java import find_java
from resources.topic_partition import TopicPartition
from resources.topic_reading import read_messages
from tests.kit.events import cluster, settled_offsets
from tests.kit.records import bootstrap
from tests.kit.topics import until_decided
from tests.kit.waiting import PATIENCE, until


@pytest.fixture
def kafka(connections: Connections) -> KafkaCluster:
    return cluster(connections)


class _Talking(KafkaCluster):
    """Its clients log what they do about transactions."""

    def client_settings(self) -> dict[str, str | int | float | bool]:
        return {**super().client_settings(), "debug": "eos"}


def _writer(kafka: KafkaCluster, topic: str, name: str | None = None) -> ControlWriter:
    writer = ControlWriter(kafka, topic, name or f"test-{uuid.uuid4()}", 30.0)
    writer.open(create=False)
    return writer


def _send(
    writer: ControlWriter,
    *values: bytes,
    progress: Sequence[GroupProgress] = (),
    before_commit: Callable[[], None] = lambda: None,
) -> None:
    writer.send_messages([Message(value, b"p") for value in values], progress, before_commit)


def _all(kafka: KafkaCluster, topic: str, cursor: str | None = None, least: int = 0) -> list[bytes]:
    """The messages, once there are so many: those of a transaction can be read a moment after its end."""
    found = list[bytes]()

    def are_there() -> bool:
        found[:] = read_messages(kafka, topic, cursor, 1000, 30).messages
        return len(found) >= least

    until(are_there, what=f"message of {topic}")
    return found


class TestWriter:
    def test_messages_and_groups_go_together(self, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
        name = topic(partitions=1)
        group = f"g-{uuid.uuid4()}"
        progress = [
            GroupProgress(group, {TopicPartition(name, 0): 5}, "as far as five"),
            GroupProgress(group + "/x", {TopicPartition(name, 0): 7}, ""),
        ]
        _send(_writer(kafka, name), b"one", b"two", progress=progress)
        assert _all(kafka, name, least=2) == [b"one", b"two"]
        partition = [TopicPartition(name, 0)]
        assert settled_offsets(kafka, group, partition) == {(name, 0): 5}
        assert settled_offsets(kafka, group + "/x", partition) == {(name, 0): 7}
        assert group_metadata(kafka, group, partition, 30) == {TopicPartition(name, 0): "as far as five"}
        assert group_metadata(kafka, group + "/nobody", partition, 30) == {}

    def test_opening_waits_for_no_timer(
        self, connections: Connections, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
    ) -> None:
        """librdkafka looks for the coordinator once, and again after half a second if it is not connected then."""
        name, kafka = topic(partitions=1), _Talking("kafka", connections.get("kafka", KafkaConnection))
        with caplog.at_level(logging.DEBUG, "batchmerge.kafka"):
            for _ in range(12):
                _send(_writer(kafka, name), b"x")
        assert "Transaction coordinator is now up" in caplog.text
        assert "Unable to query for transaction coordinator" not in caplog.text

    def test_messages_of_a_transaction_that_fails_before_its_commit_are_not_read(
        self, kafka: KafkaCluster, topic: Callable[..., str]
    ) -> None:
        name, group = topic(partitions=1), f"g-{uuid.uuid4()}"
        writer = _writer(kafka, name)

        def fail() -> None:
            raise RuntimeError("on purpose")

        progress = [GroupProgress(group, {TopicPartition(name, 0): 5}, "lost")]
        with pytest.raises(RuntimeError, match="on purpose"):
            _send(writer, b"lost", progress=progress, before_commit=fail)
        assert _all(kafka, name) == []
        assert group_offsets(kafka, group, [TopicPartition(name, 0)]) == {}
        assert not writer.is_open
        writer.open(create=False)
        _send(writer, b"kept")
        assert _all(kafka, name, least=1) == [b"kept"]

    def test_a_newer_writer_fences_the_older_one(self, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
        name, role = topic(partitions=1), f"role-{uuid.uuid4()}"
        older, other = _writer(kafka, name, role), _writer(kafka, name, role + "/other")
        _send(older, b"older")
        newer = _writer(kafka, name, role)
        with pytest.raises(Interrupted, match="newer run"):
            _send(older, b"late")
        _send(newer, b"newer")
        _send(other, b"other")
        assert _all(kafka, name, least=3) == [b"older", b"newer", b"other"]

    def test_a_newer_writer_ends_what_a_dead_one_left_open(
        self, kafka: KafkaCluster, topic: Callable[..., str]
    ) -> None:
        """The older one's transaction is open, everything is written; it is fenced before it commits."""
        name, role = topic(partitions=1), f"role-{uuid.uuid4()}"
        older = _writer(kafka, name, role)
        with pytest.raises(Interrupted):
            _send(older, b"dead", before_commit=lambda: _send(_writer(kafka, name, role), b"new"))
        assert _all(kafka, name, least=1) == [b"new"]

    def test_a_refused_message_is_what_the_error_names(self, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
        """Whatever comes after it is refused for another reason: that the transaction has failed."""
        writer = _writer(kafka, topic(partitions=1, config={"max.message.bytes": "100"}))
        with pytest.raises(Unavailable, match=r"MSG_SIZE_TOO_LARGE.*raise the topic's .max\.message\.bytes"):
            writer.send_messages(repeat(Message(b"x" * 1000)), [], lambda: None)
        writer.open(create=False)
        _send(writer, b"fits")

    def test_only_the_topic_limits_a_message(self, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
        name, value = topic(partitions=1, config={"max.message.bytes": "5000000"}), os.urandom(3_000_000)
        _send(_writer(kafka, name), value)
        assert _all(kafka, name, least=1) == [value]

    def test_a_writer_fenced_while_it_writes_reports_that(self, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
        name, role = topic(partitions=1), f"role-{uuid.uuid4()}"
        older = _writer(kafka, name, role)

        def messages() -> Iterator[Message]:
            yield Message(b"older")
            _writer(kafka, name, role)
            yield from repeat(Message(b"late"))

        with pytest.raises(Interrupted, match="newer run"):
            older.send_messages(messages(), [], lambda: None)
        assert _all(kafka, name) == []

    def test_the_topic_is_made_only_where_it_may_be(self, kafka: KafkaCluster, admin: AdminClient) -> None:
        name = f"made-{uuid.uuid4().hex[:8]}"
        refused = ControlWriter(kafka, name, f"test-{name}", 30.0)
        with pytest.raises(TopicMissing, match=r"control\.create"):
            refused.open(create=False)
        allowed = ControlWriter(kafka, name, f"test-{name}", 30.0)
        allowed.open(create=True)
        _send(allowed, b"first")
        assert _all(kafka, name, least=1) == [b"first"]
        admin.delete_topics([name])[name].result(30)


class TestReader:
    def test_only_what_is_committed(
        self, kafka: KafkaCluster, topic: Callable[..., str], connections: Connections
    ) -> None:
        """An aborted transaction is passed over, an open one holds back itself and what comes after it."""
        name = topic(partitions=1)
        servers = bootstrap(connections)
        _send(_writer(kafka, name), b"1")
        until_decided(servers, name)
        opened = Producer({"bootstrap.servers": servers, "transactional.id": f"open-{name}"})
        opened.init_transactions(30)
        opened.begin_transaction()
        opened.produce(name, b"aborted")
        assert opened.flush(PATIENCE) == 0
        opened.abort_transaction(30)
        opened.begin_transaction()
        opened.produce(name, b"open")
        assert opened.flush(PATIENCE) == 0
        _send(_writer(kafka, name), b"2")
        first = read_messages(kafka, name, None, 100, 30)
        assert first.messages == [b"1"]
        opened.commit_transaction(30)
        until_decided(servers, name)
        second = read_messages(kafka, name, first.cursor, 100, 30)
        assert second.messages == [b"open", b"2"]
        third = read_messages(kafka, name, second.cursor, 100, 30)
        assert (third.messages, third.cursor) == ([], second.cursor)

    def test_bounded_in_number_and_in_several_partitions(
        self, kafka: KafkaCluster, topic: Callable[..., str], connections: Connections
    ) -> None:
        name = topic(partitions=3)
        writer = _writer(kafka, name)
        sent = [f"{n}".encode() for n in range(25)]
        for n, value in enumerate(sent):
            writer.send_messages([Message(value, f"pipeline {n}".encode())], [], lambda: None)
        until_decided(bootstrap(connections), name)
        cursor, seen = None, list[bytes]()
        # Which partition answers first differs from read to read: messages and cursor must be of the same one.
        while (found := read_messages(kafka, name, cursor, 4, 30)).messages:
            assert len(found.messages) <= 4
            seen.extend(found.messages)
            cursor = found.cursor
        assert sorted(seen) == sorted(sent)

    def test_no_time_left_moves_nothing(self, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
        name = topic(partitions=1)
        _send(_writer(kafka, name), b"1")
        found = read_messages(kafka, name, None, 100, 0)
        assert found.messages == []
        assert _all(kafka, name, found.cursor, least=1) == [b"1"]

    def test_a_recreated_topic_is_read_from_its_start(self, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
        first, second = topic(partitions=1), topic(partitions=1)
        for _ in range(3):
            _send(_writer(kafka, first), b"old")
        _send(_writer(kafka, second), b"new")
        cursor = read_messages(kafka, first, None, 100, 30).cursor
        assert _all(kafka, second, cursor, least=1) == [b"new"]

    def test_missing_topic_and_bad_cursor(self, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
        with pytest.raises(TopicMissing):
            read_events(kafka, f"nowhere-{uuid.uuid4()}", None)
        for cursor in ("", "[]", "{}", json.dumps({"topic_id": kafka.describe([t := topic()])[0][t], "offsets": 3})):
            with pytest.raises(ConfigurationError, match="cursor"):
                read_messages(kafka, t, cursor, 1, 1)

    def test_messages_of_others_are_passed_over(
        self, kafka: KafkaCluster, topic: Callable[..., str], connections: Connections
    ) -> None:
        name = topic(partitions=1)
        event = make_event("p", "r", CommitComplete("id", 1))
        _send(_writer(kafka, name), b"what is this", encode(event), b"")
        until_decided(bootstrap(connections), name)
        found, cursor = read_events(kafka, name, None)
        assert found == [event]
        assert read_events(kafka, name, cursor) == ([], cursor)


def test_java_reads_the_events() -> None:
    """The reference implementation of Avro (Spark brings it), which knows nothing of us."""
    event = make_event("flights", "run-1", CommitTable("a-commit", 7, "lake", "air.flights", "42"))
    jars = ":".join(str(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    gateway = JavaGateway.launch_gateway(classpath=jars, java_path=str(find_java(print).executable), die_on_exit=True)
    try:
        avro = gateway.jvm.org.apache.avro
        reader = avro.file.DataFileReader(
            avro.file.SeekableByteArrayInput(encode(event)), avro.generic.GenericDatumReader()
        )
        record = reader.next()
        assert not reader.hasNext()
        assert reader.getSchema().getFullName() == "batchmerge.control.Event"
        assert str(record.get("id")) == event.id
        assert str(record.get("type")) == "commit_table"
        assert str(record.get("payload").get("table")) == "air.flights"
        assert record.get("payload").get("batch_number") == 7
        assert record.get("payload").get("vtts") is None
    finally:
        gateway.shutdown()

"""Offset ranges read by one consumer, one or thousands: exactly their committed records, or an error."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from jobs.landing.read_task import ReadTask, packed
from jobs.offsets import OffsetRange, TopicPartition
from resources import range_reading
from resources.carried_errors import CarriedError, carried_by
from resources.connections import Connections, KafkaConnection
from resources.errors import TransientError, Unavailable
from resources.kafka import KafkaCluster
from resources.kafka_records import WantedHeaders, combined, records_schema
from tests.kit.network import with_connection
from tests.kit.records import Record, bootstrap, produce, put

MakeTopic = Callable[..., str]


def read(
    connections: Connections, *ranges: dict[TopicPartition, OffsetRange], headers: WantedHeaders = False
) -> pa.Table:
    """What tasks would read, one share after the other."""
    kafka = KafkaCluster("kafka", connections.get("kafka", KafkaConnection))
    task = ReadTask(kafka, list(map(packed, ranges)), headers)
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(ranges)))})
    try:
        return pa.Table.from_batches(task([numbers]), records_schema(headers))
    except CarriedError as problem:
        raise carried_by(f"CarriedError: {problem}") or problem from None


def places(found: pa.Table) -> list[tuple[str, int, int]]:
    return sorted(zip(*(found[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True))


def test_exactly_the_ranges_of_many_partitions(connections: Connections, topic: MakeTopic) -> None:
    one, two = topic(partitions=200), topic(partitions=3)
    servers = bootstrap(connections)
    produce(servers, one, [put(n, partition=n % 200) for n in range(1000)])
    produce(servers, two, [put(n) for n in range(3000)])
    wide = {TopicPartition(one, p): OffsetRange(p % 3, 2 + p % 4) for p in range(200)}
    deep = {TopicPartition(two, 0): OffsetRange(100, 110), TopicPartition(two, 1): OffsetRange(0, 0)}
    wanted = [(tp.topic, tp.partition, o) for tp, r in {**wide, **deep}.items() for o in range(r.start, r.end)]
    assert places(read(connections, wide, deep)) == sorted(wanted)


def test_ranges_that_are_larger_than_what_is_fetched_at_once(connections: Connections, topic: MakeTopic) -> None:
    """Cut in the middle of compressed batches, too."""
    name, servers = topic(partitions=2), bootstrap(connections)
    produce(servers, name, [put(n, name="x" * 200, partition=n % 2) for n in range(60_000)])
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    one = {first: OffsetRange(17, 29_000), second: OffsetRange(0, 12_345)}
    two = {first: OffsetRange(29_000, 30_000), second: OffsetRange(12_345, 29_999)}
    found = read(connections, one, two)
    wanted = {first: (17, 30_000), second: (0, 29_999)}
    assert places(found) == [(*tp, offset) for tp, (start, end) in wanted.items() for offset in range(start, end)]
    for partition in (0, 1):
        offsets = found.filter(pc.equal(found["partition"], partition))["offset"].to_pylist()
        assert offsets == sorted(offsets), "within a partition by offset"


def test_records_are_as_they_were_sent(connections: Connections, topic: MakeTopic) -> None:
    name, moment = topic(), 1_700_000_000_123
    tombstone, keyless = Record(0, 1, None), Record(0, None, "no JSON")
    produce(bootstrap(connections), name, [tombstone, keyless], timestamp=moment, headers=[("a", b"\xff"), ("a", b"")])
    produce(bootstrap(connections), name, [tombstone])
    ranges = {TopicPartition(name, 0): OffsetRange(0, 3)}
    rows: list[dict[str, Any]] = read(connections, ranges, headers=True).to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [
        (b'{"id": 1}', None),
        (None, b"no JSON"),
        (b'{"id": 1}', None),
    ]
    assert [row["timestamp"].timestamp() for row in rows[:2]] == [moment / 1000] * 2
    both = [{"key": "a", "value": b"\xff"}, {"key": "a", "value": b""}]
    assert [row["headers"] for row in rows] == [both, both, None]
    named = read(connections, ranges, headers=combined([False, frozenset({"a"}), frozenset({"b"})])).to_pylist()
    assert [row["some_headers"] for row in named] == [both, both, None]
    others = read(connections, ranges, headers=frozenset({"b"})).to_pylist()
    assert [row["some_headers"] for row in others] == [None] * 3
    assert combined([False, True, frozenset({"b"})]) is True
    assert read(connections, ranges).column_names == ["key", "value", "topic", "partition", "offset", "timestamp"]


def test_timestamps_that_are_no_milliseconds_become_the_last_there_is(
    connections: Connections, topic: MakeTopic
) -> None:
    """As where a producer gives microseconds."""
    name = topic(config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    for moment in (1_700_000_000_000_123, 1_700_000_000_000_123_456):
        produce(bootstrap(connections), name, [put(1)], timestamp=moment)
    rows: list[dict[str, Any]] = read(connections, {TopicPartition(name, 0): OffsetRange(0, 2)}).to_pylist()
    assert [row["timestamp"].year for row in rows] == [9999, 9999]


def test_ranges_that_end_in_what_was_never_committed(connections: Connections, topic: MakeTopic) -> None:
    servers, name, who = bootstrap(connections), topic(), f"tx-{uuid.uuid4().hex[:6]}"
    produce(servers, name, [put(1)], transaction=who)
    produce(servers, name, [put(2), put(3)], transaction=who, abort=True)
    tp = TopicPartition(name, 0)
    assert places(read(connections, {tp: OffsetRange(0, 5)})) == [(name, 0, 0)]
    assert places(read(connections, {tp: OffsetRange(2, 5)})) == []
    produce(servers, name, [put(4)])
    assert places(read(connections, {tp: OffsetRange(0, 4)})) == [(name, 0, 0)], "the next record is not its own"


def test_aborted_records_of_which_librdkafka_says_nothing(
    connections: Connections, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gigabytes of them take longer than an answer may; here what ends them would never come. Only after a silence is
    librdkafka asked how far it is: its statistics cost more than the records of thousands of partitions."""
    monkeypatch.setattr(range_reading, "_SETTINGS", {**range_reading._SETTINGS, "enable.partition.eof": False})
    with_statistics = list[bool]()

    def opened(settings: dict[str, Any], **more: Any) -> Consumer:
        with_statistics.append("statistics.interval.ms" in settings)
        return Consumer(settings, **more)

    monkeypatch.setattr(range_reading, "Consumer", opened)
    servers, name = bootstrap(connections), topic()
    produce(servers, name, [put(1)])
    produce(servers, name, [put(2), put(3)], transaction=f"tx-{uuid.uuid4().hex[:6]}", abort=True)
    kafka = connections.get("kafka", KafkaConnection)
    hasty = with_connection(connections, "kafka", kafka.model_copy(update={"timeout_seconds": 10}))
    assert places(read(hasty, {TopicPartition(name, 0): OffsetRange(0, 1)})) == [(name, 0, 0)]
    assert with_statistics == [False]
    assert places(read(hasty, {TopicPartition(name, 0): OffsetRange(0, 3)})) == [(name, 0, 0)], "once"
    assert with_statistics == [False, False, True]


def test_offsets_that_kafka_does_not_have(connections: Connections, topic: MakeTopic) -> None:
    servers, name = bootstrap(connections), topic()
    produce(servers, name, [put(n) for n in range(10)])
    admin = AdminClient({"bootstrap.servers": servers})
    for pending in admin.delete_records([KafkaPartition(name, 0, 4)]).values():
        pending.result(timeout=30)
    for gone in (OffsetRange(2, 8), OffsetRange(5, 12), OffsetRange(20, 21)):
        with pytest.raises(TransientError, match="no longer has offsets"):
            read(connections, {TopicPartition(name, 0): gone})


def test_brokers_that_do_not_answer() -> None:
    silent = KafkaConnection(kind="kafka", bootstrap_servers="127.0.0.1:9", timeout_seconds=1)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        read(Connections({"kafka": silent}, "test"), {TopicPartition("t", 0): OffsetRange(0, 1)})

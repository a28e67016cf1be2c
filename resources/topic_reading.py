"""Reads topics to their end, a bounded part at a time: committed records only, no consumer group, nothing committed."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as _Message

from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster
from resources.kafka_errors import kafka_errors

_LOG = logging.getLogger("batchmerge.kafka")
_SAMPLE_SECONDS = 60.0
# A call of the consumer returns this many messages,
_AT_ONCE = 500
# or those that have come within this many seconds.
_GATHER_SECONDS = 0.1


@dataclass(frozen=True)
class MessagePage:
    """Messages in the order of their partitions, and the cursor to go on from."""

    messages: list[bytes]
    cursor: str


@dataclass(frozen=True)
class TopicMessage:
    """A message and where it is."""

    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True)
class SampleRecord:
    """Key and value of one record; None where it has none."""

    key: bytes | None
    value: bytes | None


def read_messages(cluster: KafkaCluster, topic: str, cursor: str | None, limit: int, seconds: float) -> MessagePage:
    """Committed messages after the cursor; ends at the last stable offset, at `limit` messages or after `seconds`.

    Args:
        cursor: that of an earlier call; None: from the first message that is still there. Where the topic has been
            recreated since, reading begins at its first message.

    Raises:
        TopicMissing, Unavailable, ConfigurationError: also for an invalid cursor.
    """
    ids, partitions = cluster.describe(cluster.topics([topic], None))
    after = _parse_cursor(cursor, ids[topic])
    starts = {p: after.get(p, OFFSET_BEGINNING) for _, p in partitions}
    messages: list[bytes] = []
    with _reader(cluster, topic, starts) as consumer, suppress(TimeoutError):
        for partition, following, message in _until_end(consumer, set(starts), seconds):
            after[partition] = following
            if message:
                messages.append(message.value() or b"")
            if len(messages) >= limit:
                break
    text = json.dumps({"topic_id": ids[topic], "offsets": {str(p): o for p, o in sorted(after.items())}})
    return MessagePage(messages, text)


def read_to_end(cluster: KafkaCluster, topic: str, seconds: float) -> list[TopicMessage]:
    """All committed messages of a topic up to its last stable offset.

    Raises:
        TopicMissing, Unavailable: also where the end was not reached in time.
    """
    _, partitions = cluster.describe(cluster.topics([topic], None))
    starts = {p: OFFSET_BEGINNING for _, p in partitions}
    with _reader(cluster, topic, starts) as consumer:
        return [
            TopicMessage(partition, following - 1, message.value() or b"")
            for partition, following, message in _until_end(consumer, set(starts), seconds)
            if message
        ]


def newest_records(cluster: KafkaCluster, topic: str, count: int) -> list[SampleRecord]:
    """Up to `count` of the newest records of all partitions.

    Raises:
        TopicMissing, Unavailable, ConfigurationError.
    """
    _, partitions = cluster.describe(cluster.topics([topic], None))
    first, ends = cluster.first_offsets(partitions), cluster.stable_offsets(partitions)
    share = max(1, count // max(1, sum(ends[p] > first[p] for p in partitions)))
    starts = {p[1]: max(first[p], ends[p] - share) for p in partitions if ends[p] > first[p]}
    found: list[SampleRecord] = []
    with _reader(cluster, topic, starts) as consumer:
        for _, _, message in _until_end(consumer, set(starts), _SAMPLE_SECONDS):
            if message:
                found.append(SampleRecord(message.key(), message.value()))
            if len(found) >= count:
                break
    return found


@contextmanager
def _reader(cluster: KafkaCluster, topic: str, starts: Mapping[int, int]) -> Iterator[Consumer]:
    """A consumer at these offsets by partition."""
    settings = {
        **cluster.client_settings(),
        # librdkafka wants one; nothing is committed and nobody joins it.
        "group.id": "batchmerge-readers",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    with kafka_errors(f"topic {topic}"):
        consumer = Consumer(settings, logger=_LOG)
        try:
            consumer.assign([TopicPartition(topic, p, offset) for p, offset in starts.items()])
            yield consumer
        finally:
            consumer.close()


def _until_end(consumer: Consumer, unfinished: set[int], seconds: float) -> Iterator[tuple[int, int, _Message | None]]:
    """Partition, the offset to go on from, and the message, or None at the partition's end.

    Raises:
        KafkaException. TimeoutError: partitions have not ended in this time.
    """
    deadline = time.monotonic() + seconds
    while unfinished:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        for message in consumer.consume(_AT_ONCE, min(_GATHER_SECONDS, left)):
            partition, offset, problem = message.partition(), message.offset(), message.error()
            if problem and problem.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # librdkafka looks for the group's coordinator, whom nobody needs here
            if problem and problem.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(problem)
            assert partition is not None
            assert offset is not None
            if problem:
                unfinished.discard(partition)
                yield partition, offset, None
            else:
                yield partition, offset + 1, message


def _parse_cursor(cursor: str | None, topic_id: str) -> dict[int, int]:
    if cursor is None:
        return {}
    try:
        found = json.loads(cursor)
        if found["topic_id"] != topic_id:
            return {}
        return {int(p): int(o) for p, o in found["offsets"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigurationError(
            "not a cursor of the control topic", where=cursor[:80], remedy="reset the cursor"
        ) from None

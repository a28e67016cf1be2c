"""The newest records of a topic, for people who look at it: no consumer group, nothing committed."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from resources.errors import Unavailable
from resources.kafka import KafkaCluster


@dataclass(frozen=True)
class SampleRecord:
    """Key and value of one record; None where it has none."""

    key: bytes | None
    value: bytes | None


def newest_records(cluster: KafkaCluster, topic: str, count: int) -> list[SampleRecord]:
    """Up to `count` of the newest records of all partitions.

    Raises:
        TopicMissing: no such topic. Unavailable: Kafka does not answer.
    """
    cluster.topics([topic], None)
    _, partitions = cluster.describe([topic])
    first, ends = cluster.first_offsets(partitions), cluster.stable_offsets(partitions)
    share = max(1, count // max(1, sum(ends[p] > first[p] for p in partitions)))
    starts = {p: max(first[p], ends[p] - share) for p in partitions if ends[p] > first[p]}
    settings = {**cluster.client_settings(), "group.id": "batchmerge-infer", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(t, p, offset) for (t, p), offset in starts.items()])
        return _until_the_end(consumer, len(starts), count, topic)
    except KafkaException as problem:
        raise Unavailable(
            f"the topic cannot be read: {problem.args[0].str()}", where=topic, remedy="check the Kafka connection"
        ) from None
    finally:
        consumer.close()


def _until_the_end(consumer: Consumer, open_partitions: int, count: int, topic: str) -> list[SampleRecord]:
    found: list[SampleRecord] = []
    deadline = time.monotonic() + 60
    while open_partitions and len(found) < count:
        message = consumer.poll(1)
        if message is None:
            if time.monotonic() > deadline:
                raise Unavailable("no record comes", where=topic, remedy="check the brokers")
        elif message.error():
            open_partitions -= 1  # the end of a partition
        else:
            found.append(SampleRecord(message.key(), message.value()))
    return found

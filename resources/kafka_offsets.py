"""Asks Kafka for offsets of many partitions: thousands in a tenth of a second.

A consumer asks, since the admin client makes a future with a lock of its own for each partition; and some hundred at a
time, since librdkafka looks each partition of an answer up in its request from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException
from confluent_kafka import TopicPartition as _TopicPartition

from resources.kafka_errors import UNKNOWN, settled
from resources.topic_partition import TopicPartition

# In the place of a time, as Kafka's request ListOffsets has them.
LATEST, EARLIEST = OFFSET_END, OFFSET_BEGINNING
_AT_ONCE = 250
# Settings of a consumer that reads what is committed, without a group.
UNGROUPED: dict[str, Any] = {
    # librdkafka wants the name of one; nothing is committed and nobody joins it.
    "group.id": "batchmerge-readers",
    "enable.auto.commit": False,
    # With it, `LATEST` is the last stable offset.
    "isolation.level": "read_committed",
}
# Those of the consumer that `list_offsets` takes.
ASKING: dict[str, Any] = {
    **UNGROUPED,
    # Milliseconds for which it believes what it knows of leaders, as it stays open; librdkafka's default is 15 minutes.
    "metadata.max.age.ms": 5000,
}


def list_offsets(
    consumer: Consumer, partitions: Iterable[TopicPartition], milliseconds: int, seconds: float
) -> dict[TopicPartition, _TopicPartition]:
    """The first offset at or after that time (`LATEST` and `EARLIEST` are such times too), per partition: -1 where
    there is none; and its leader's epoch, None if the broker does not say it.

    Args:
        consumer: with the settings `ASKING`, assigned to nothing.
        seconds: to wait for all answers; and, while the cluster is still choosing leaders, until it has.

    Raises:
        KafkaException: a partition's error, or no answer.
    """
    wanted = list(partitions)

    def ask() -> dict[TopicPartition, _TopicPartition]:
        found, until = list[_TopicPartition](), time.monotonic() + seconds
        for start in range(0, len(wanted), _AT_ONCE):
            found += _asked(consumer, wanted[start : start + _AT_ONCE], milliseconds, until)
        return dict(zip(wanted, found, strict=True))

    return settled(ask, seconds)


def _asked(
    consumer: Consumer, partitions: list[TopicPartition], milliseconds: int, until: float
) -> list[_TopicPartition]:
    try:
        return _ask(consumer, partitions, milliseconds, until)
    except KafkaException as problem:
        if problem.args[0].code() not in UNKNOWN:
            raise
    # The consumer remembers a topic's partitions, and the topic may have got more, or have been made, since.
    consumer.list_topics(timeout=_left(until))
    return _ask(consumer, partitions, milliseconds, until)


def _ask(
    consumer: Consumer, partitions: list[TopicPartition], milliseconds: int, until: float
) -> list[_TopicPartition]:
    asked = [_TopicPartition(topic, partition, milliseconds) for topic, partition in partitions]
    answered: list[_TopicPartition] = consumer.offsets_for_times(asked, timeout=_left(until))
    if failed := [one.error for one in answered if one.error]:
        raise KafkaException(failed[0])
    return answered  # in the order of the request


def _left(until: float) -> float:
    return max(0.1, until - time.monotonic())

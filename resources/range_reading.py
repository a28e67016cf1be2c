"""Reads offset ranges of many topic-partitions with one consumer: committed records only, exactly those of the ranges.

For ranges of few records. Spark's own source has a consumer for each range and each batch: that is some 10 ms of a core
and a connection, whatever the range has. One that reads thousands of ranges takes as long as ten of those.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as _TopicPartition

from resources.errors import TransientError
from resources.kafka import KafkaCluster
from resources.kafka_errors import REFUSED, kafka_errors
from resources.topic_partition import TopicPartition

_LOG = logging.getLogger("batchmerge.kafka")
_AT_ONCE, _WAIT_SECONDS = 10_000, 1.0
_SETTINGS = {
    # librdkafka wants a group; nothing is committed and nobody joins it.
    "group.id": "batchmerge-readers",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # The broker holds a fetch back for this time where a partition has nothing more, others waiting behind it.
    "fetch.wait.max.ms": 10,
    # A range has few records, and its partition may have many more.
    "fetch.message.max.bytes": 256 << 10,
    "queued.max.messages.kbytes": 64 << 10,
}
# What was there when the batch was planned is not any more.
_GONE = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)


def read_ranges(cluster: KafkaCluster, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[list[Message]]:
    """The records of ``[start, end)`` of each topic-partition, as they come; within a partition by offset.

    Raises:
        TransientError: Kafka does not have the offsets any more. Unavailable: nothing has come for as long as the
            connection waits for an answer. ConfigurationError.
    """
    known = cluster.client_settings()
    where, seconds = f"connection {cluster.name} ({known['bootstrap.servers']})", int(known["socket.timeout.ms"]) / 1000
    unfinished = {tp: end for tp, (start, end) in ranges.items() if start < end}
    with kafka_errors(where):
        consumer = Consumer({**known, **_SETTINGS}, logger=_LOG)
        try:
            consumer.assign([_TopicPartition(*tp, ranges[tp][0]) for tp in unfinished])
            yield from _Reading(where, seconds).until_end(consumer, unfinished)
        finally:
            consumer.close()


@dataclass(frozen=True)
class _Reading:
    """
    Attributes:
        where: the connection, for errors.
        seconds: to wait for the next record, or for the end of a range.
    """

    where: str
    seconds: float

    def until_end(self, consumer: Consumer, unfinished: dict[TopicPartition, int]) -> Iterator[list[Message]]:
        problem, deadline = KafkaError(KafkaError._TIMED_OUT), time.monotonic() + self.seconds
        while unfinished:
            records, finished = list[Message](), list[TopicPartition]()
            for message in _waiting(consumer):
                error = message.error()
                if error and error.code() != KafkaError._PARTITION_EOF:
                    problem = self._judged(error, problem)
                    continue
                place, at = TopicPartition(str(message.topic()), message.partition() or 0), message.offset() or 0
                end = unfinished.get(place)
                if end is None:
                    continue  # it was read already
                if error and at < end:
                    raise self._gone(f"{place} ends at {at}, not at {end}")
                if at < end:
                    records.append(message)
                if at >= end - 1:
                    finished.append(place)
                    del unfinished[place]
            if records or finished:
                deadline = time.monotonic() + self.seconds
            elif time.monotonic() > deadline:
                raise KafkaException(problem)
            if unfinished and finished:
                consumer.incremental_unassign([_TopicPartition(*place) for place in finished])
            if records:
                yield records

    def _judged(self, error: KafkaError, before: KafkaError) -> KafkaError:
        """What is raised when nothing comes any more; most problems of connections librdkafka mends by itself."""
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return before  # librdkafka looks for the group's coordinator, whom nobody needs here
        if error.code() in REFUSED:
            raise KafkaException(error)
        if error.code() in _GONE:
            raise self._gone(error.str())
        return error

    def _gone(self, what: str) -> TransientError:
        return TransientError(
            f"Kafka no longer has offsets that were there when the batch was planned ({what})",
            where=self.where,
            remedy="run again: the plan names the offsets that are missing",
        )


def _waiting(consumer: Consumer) -> Sequence[Message]:
    """What there is by now; the first one is waited for."""
    first = consumer.poll(_WAIT_SECONDS)
    return [first, *consumer.consume(_AT_ONCE, 0)] if first is not None else []

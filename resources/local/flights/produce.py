"""The stream of changes, sent to a topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from resources.errors import Unavailable
from resources.local.flights.changes import FlightChanges, Record

_LOG = logging.getLogger("batchmerge.kafka")
_TIMEOUT = 30  # seconds
_PRODUCER_SETTINGS = {
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 50,
    "queue.buffering.max.messages": 200_000,
    "message.timeout.ms": _TIMEOUT * 1000,
    "delivery.report.only.error": True,
}
_TOPIC_SETTINGS = {
    # The records are of 2013: retention by time would delete them, and cut a segment for each of their weeks.
    "retention.ms": "-1",
    "segment.ms": str(10 * 365 * 86_400_000),
}


@dataclass(frozen=True)
class Produced:
    """What was sent; `records` are all of them, malformed ones included."""

    partitions: int
    records: int
    seconds: float


def produce_flights(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 4,
    month: int | None = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> Produced:
    """Send the changes of a month of 2013, or of the year (`month` None), in their order; create a missing topic.

    A flight's changes all go to one partition. An existing topic keeps its number of partitions.

    Args:
        progress: called about twice a second with the number of records that were handed over so far.

    Raises:
        Unavailable: the cluster does not answer, or did not take a record.
    """
    changes = FlightChanges(month)
    count = partitions_of(bootstrap, topic, partitions)
    refused: list[KafkaError] = []
    producer = Producer({**_PRODUCER_SETTINGS, "bootstrap.servers": bootstrap}, logger=_LOG)

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error)

    total = len(changes)  # reads the files, which is no part of the rate
    begin = reported = time.monotonic()
    for sent, record in enumerate(changes):
        _hand_over(producer, topic, record, crc32(record.route) % count, delivered)
        if sent % 1000 == 0:
            producer.poll(0)
            _check(bootstrap, refused)
            now = time.monotonic()
            if now - reported >= 0.5:
                progress(sent)
                reported = now
    left = producer.flush(2 * _TIMEOUT)
    _check(bootstrap, refused, left)
    seconds = time.monotonic() - begin
    progress(total)
    return Produced(count, total, seconds)


def _hand_over(
    producer: Producer,
    topic: str,
    record: Record,
    partition: int,
    delivered: Callable[[KafkaError | None, Message], None],
) -> None:
    """Gives a record to the producer; waits for the broker while the producer's queue is full."""
    while True:
        try:
            return producer.produce(
                topic, record.value, record.key, partition, timestamp=record.timestamp, on_delivery=delivered
            )
        except BufferError:
            producer.poll(0.1)


def _check(bootstrap: str, refused: list[KafkaError], left: int = 0) -> None:
    if refused or left:
        reason = refused[0].str() if refused else f"{left} records are not acknowledged"
        raise Unavailable(
            f"the records were not taken: {reason}",
            where=f"Kafka at {bootstrap}",
            remedy="see that the broker runs (`batchmerge status`), delete the topic, and try again",
        )


def partitions_of(bootstrap: str, topic: str, wanted: int) -> int:
    """The number of partitions of the topic, which is created if it is missing."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=_LOG)
    try:
        known = admin.list_topics(timeout=_TIMEOUT).topics
        if topic in known:
            return len(known[topic].partitions)
        new = NewTopic(topic, num_partitions=wanted, replication_factor=1, config=_TOPIC_SETTINGS)
        admin.create_topics([new], operation_timeout=_TIMEOUT)[topic].result()
    except KafkaException as error:
        raise Unavailable(
            f"the cluster does not answer as it should: {error.args[0].str()}",
            where=f"Kafka at {bootstrap}",
            remedy="see that the broker runs (`batchmerge status`)",
        ) from error
    return wanted

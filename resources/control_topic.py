"""The control topic: messages and consumer group offsets in one Kafka transaction, and a bounded reader.

A writer is fenced by its `transactional.id`: opening one ends what an older writer of that id had begun, and refuses
whatever that one tries afterwards (KIP-98). Readers see committed transactions only.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from resources.errors import ConfigurationError, Interrupted, TopicMissing, Unavailable
from resources.kafka import KafkaCluster, Partition

_LOG = logging.getLogger("batchmerge.kafka")
# What comes after a failure in a transaction is told this, not what failed.
_FAILED_BEFORE = {KafkaError._STATE, KafkaError._FATAL}
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
}
_COORDINATOR_MOVES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


@dataclass(frozen=True)
class Message:
    """One message to write; `timestamp` in milliseconds, 0: now."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp: int = 0


@dataclass(frozen=True)
class GroupProgress:
    """Offsets to commit for a consumer group without members; `note` is kept beside the first of them."""

    group: str
    offsets: Mapping[Partition, int]
    note: str


def read_notes(cluster: KafkaCluster, group: str, partitions: Iterable[Partition], timeout: float) -> list[str]:
    """The notes that were committed with a group's offsets; empty where there is no such group."""
    wanted = [TopicPartition(*p) for p in partitions]
    deadline = time.monotonic() + timeout
    with _errors(f"consumer group {group}"), _member(cluster, group) as member:
        while True:
            try:
                return [tp.metadata for tp in member.committed(wanted, _left(deadline)) if tp.metadata]
            except KafkaException as problem:
                # A broker that has just started, or taken the group over, answers so for a moment.
                if problem.args[0].code() not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


class ControlWriter:
    """Writes to one control topic under one `transactional.id`; to be opened again after a failure.

    Not for several threads at once.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, transactional_id: str, timeout: float) -> None:
        self._cluster, self._topic, self._id, self._timeout = cluster, topic, transactional_id, timeout
        self._producer: Producer | None = None

    @property
    def is_open(self) -> bool:
        return self._producer is not None

    def open(self, create: bool) -> None:
        """Fences older writers of this id, and ends what they had begun.

        Args:
            create: make the topic if it is missing: one partition, replicated as the cluster's default says.

        Raises:
            TopicMissing, Unavailable, ConfigurationError.
        """
        settings = {
            **self._cluster.client_settings(),
            "transactional.id": self._id,
            # A dead writer's open transaction holds up the readers for so long, unless a newer one ends it.
            "transaction.timeout.ms": int(self._timeout * 1000),
            # librdkafka wants this not to be the longer one.
            "socket.timeout.ms": int(self._timeout * 1000),
            "compression.type": "gzip",
            # Only the topic limits it: a dead letter may be as large as its record.
            "message.max.bytes": 1_000_000_000,
        }
        with _errors(f"control topic {self._topic}"):
            self._ensure(create)
            producer = Producer(settings, logger=_LOG)
            # librdkafka asks for a transaction's coordinator at once, then every half second: be connected by then.
            producer.list_topics(self._topic, self._timeout)
            producer.init_transactions(self._timeout)
            self._producer = producer

    def send(
        self, key: str, values: Sequence[bytes], progress: Sequence[GroupProgress], before_commit: Callable[[], None]
    ) -> None:
        """Sends these values under one key, as `send_messages` does."""
        self.send_messages([Message(value, key.encode()) for value in values], progress, before_commit)

    def send_messages(
        self, messages: Iterable[Message], progress: Sequence[GroupProgress], before_commit: Callable[[], None]
    ) -> None:
        """Sends messages and commits group offsets, all or nothing.

        Args:
            messages: read one by one while they are sent.
            before_commit: called when everything is written and nothing is committed.

        Raises:
            Interrupted: a newer writer of this id has been opened. Unavailable: not, or not known to be, committed.
        """
        assert self._producer, "open it first"
        producer, deadline = self._producer, time.monotonic() + self._timeout
        with _errors(f"control topic {self._topic}"):
            producer.begin_transaction()
            try:
                self._write(producer, messages, progress, deadline)
                before_commit()
                producer.commit_transaction(_left(deadline))
            except BaseException:
                # A producer may be unable to begin anew after a failure (sequence numbers are missing: tried).
                self._producer = None
                # If this fails too, the next writer of this id does it, or the transaction's timeout.
                with contextlib.suppress(KafkaException):
                    producer.abort_transaction(1)
                raise

    def _write(
        self, producer: Producer, messages: Iterable[Message], progress: Sequence[GroupProgress], deadline: float
    ) -> None:
        try:
            for message in messages:
                self._produce(producer, message, deadline)
            for group in progress:
                self._send_offsets(producer, group, _left(deadline))
            producer.flush(_left(deadline))
        except KafkaException as problem:
            raise _first_failure(producer, problem) from None

    def _produce(self, producer: Producer, message: Message, deadline: float) -> None:
        # No delivery callback: a fenced producer's error would be raised into it. The commit knows.
        headers: list[tuple[str, str | bytes | None]] = list(message.headers)
        while True:
            try:
                producer.produce(self._topic, message.value, message.key, headers=headers, timestamp=message.timestamp)
                return
            except BufferError:  # the producer's queue is full
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                producer.poll(0.1)

    def _send_offsets(self, producer: Producer, progress: GroupProgress, timeout: float) -> None:
        wanted = [
            TopicPartition(topic, partition, offset, progress.note if n == 0 else "")
            for n, ((topic, partition), offset) in enumerate(sorted(progress.offsets.items()))
        ]
        if not wanted:
            return
        with _member(self._cluster, progress.group) as member:
            producer.send_offsets_to_transaction(wanted, member.consumer_group_metadata(), timeout)

    def _ensure(self, create: bool) -> None:
        try:
            self._cluster.topics([self._topic], None)
        except TopicMissing:
            if not create:
                raise TopicMissing(
                    f"the control topic {self._topic} does not exist, or this user may not see it",
                    where=f"connection {self._cluster.name}",
                    remedy="create it, or set `control.create: true`, or `control.enabled: false`",
                    topic=self._topic,
                ) from None
            self._cluster.create_topic(self._topic)


@dataclass(frozen=True)
class Found:
    """Messages in the order of their partitions, and where to go on from."""

    messages: list[bytes]
    cursor: str


def read_messages(cluster: KafkaCluster, topic: str, cursor: str | None, limit: int, seconds: float) -> Found:
    """Committed messages after the cursor; ends at the last stable offset, at `limit` messages or after `seconds`.

    Args:
        cursor: of an earlier call; None: from the first message that is still there. Where the topic has been
            recreated since, reading begins at its first message.

    Raises:
        TopicMissing, Unavailable, ConfigurationError: also for a cursor that is none.
    """
    ids, partitions = cluster.describe(cluster.topics([topic], None))
    after = _parse_cursor(cursor, ids[topic])
    settings = {
        **cluster.client_settings(),
        "group.id": "batchmerge-control-readers",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    with _errors(f"control topic {topic}"):
        consumer = Consumer(settings, logger=_LOG)
        try:
            consumer.assign([TopicPartition(topic, p, after.get(p, OFFSET_BEGINNING)) for _, p in partitions])
            messages = _read(consumer, after, {p for _, p in partitions}, limit, time.monotonic() + seconds)
        finally:
            consumer.close()
    text = json.dumps({"topic_id": ids[topic], "offsets": {str(p): o for p, o in sorted(after.items())}})
    return Found(messages, text)


def _read(consumer: Consumer, after: dict[int, int], unfinished: set[int], limit: int, deadline: float) -> list[bytes]:
    """Reads until every partition ends; moves `after`."""
    messages: list[bytes] = []
    while unfinished and len(messages) < limit and time.monotonic() < deadline:
        for message in consumer.consume(min(limit - len(messages), 500), min(1.0, _left(deadline))):
            partition, offset, problem = message.partition(), message.offset(), message.error()
            if problem and problem.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(problem)
            assert partition is not None
            assert offset is not None
            if problem:
                unfinished.discard(partition)
                after[partition] = offset
            else:
                after[partition] = offset + 1
                messages.append(message.value() or b"")
    return messages


@dataclass(frozen=True)
class Place:
    """A message and where it is."""

    partition: int
    offset: int
    value: bytes


def read_to_end(cluster: KafkaCluster, topic: str, seconds: float) -> list[Place]:
    """All committed messages of a topic up to its last stable offset.

    Raises:
        TopicMissing, Unavailable: also where the end was not reached in time.
    """
    _, partitions = cluster.describe(cluster.topics([topic], None))
    settings = {
        **cluster.client_settings(),
        "group.id": "batchmerge-control-readers",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    deadline, unfinished, found = time.monotonic() + seconds, {p for _, p in partitions}, list[Place]()
    with _errors(f"topic {topic}"):
        consumer = Consumer(settings, logger=_LOG)
        try:
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for _, p in partitions])
            while unfinished:
                if time.monotonic() > deadline:
                    raise TimeoutError
                for message in consumer.consume(500, 1.0):
                    partition, offset, problem = message.partition(), message.offset(), message.error()
                    assert partition is not None
                    assert offset is not None
                    if problem is None:
                        found.append(Place(partition, offset, message.value() or b""))
                    elif problem.code() == KafkaError._PARTITION_EOF:
                        unfinished.discard(partition)
                    else:
                        raise KafkaException(problem)
        finally:
            consumer.close()
    return found


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


def _first_failure(producer: Producer, problem: KafkaException) -> KafkaException:
    """What failed this transaction: asked of a begin, which a failed transaction refuses with its reason."""
    if problem.args[0].code() not in _FAILED_BEFORE:
        return problem
    try:
        producer.begin_transaction()
    except KafkaException as reason:
        return problem if reason.args[0].code() in _FAILED_BEFORE else reason
    return problem


@contextmanager
def _member(cluster: KafkaCluster, group: str) -> Iterator[Consumer]:
    """A consumer that never joins its group: librdkafka gives a group's metadata to nobody else.

    Not the admin client: of confluent-kafka 2.16 one that is let go right after an answer crashes the process (tried).
    """
    # What was committed last, not what a transaction under way may yet commit.
    settings = {**cluster.client_settings(), "group.id": group, "isolation.level": "read_uncommitted"}
    consumer = Consumer(settings, logger=_LOG)
    try:
        yield consumer
    finally:
        consumer.close()


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.1)


@contextmanager
def _errors(where: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as problem:
        error: KafkaError = problem.args[0]
        if error.code() in _FENCED:
            raise Interrupted("a newer run speaks for this one", where=where) from None
        if error.code() in _REFUSED:
            raise ConfigurationError(
                f"Kafka refuses access: {error.name()}", where=where, remedy="check credentials and permissions"
            ) from None
        too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        raise Unavailable(
            f"Kafka does not answer as it should: {error.name()}, {error.str()}",
            where=where,
            remedy="raise the topic's `max.message.bytes`" if too_large else "check the brokers",
        ) from None
    except TimeoutError:
        raise Unavailable("Kafka did not answer in time", where=where, remedy="check the brokers") from None

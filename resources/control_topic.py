"""The control topic: messages and consumer group offsets in one Kafka transaction.

A writer is fenced by its `transactional.id`: opening one ends what an older writer of that id had begun, and refuses
whatever that one tries afterwards (KIP-98). Readers see committed transactions only.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as _TopicPartition

from resources.errors import TopicMissing
from resources.kafka import KafkaCluster
from resources.kafka_errors import kafka_errors
from resources.kafka_groups import group_member
from resources.topic_partition import TopicPartition

_LOG = logging.getLogger("batchmerge.kafka")
# Codes of calls after a failure in a transaction: they do not say what failed.
_FAILED_BEFORE = {KafkaError._STATE, KafkaError._FATAL}


@dataclass(frozen=True)
class Message:
    """One message to write; `timestamp` in milliseconds, 0: now."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp: int = 0


@dataclass(frozen=True)
class GroupProgress:
    """Offsets to commit for a consumer group without members; `metadata` is kept with the first one of each topic,
    since Kafka forgets those of a topic that is deleted.

    If several have the same partition of a group, the last one counts.
    """

    group: str
    offsets: Mapping[TopicPartition, int]
    metadata: str


class ControlWriter:
    """Writes to one control topic, or another topic, under one `transactional.id`; to be opened again after a failure.

    Not for several threads at once.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        transactional_id: str,
        timeout: float,
        what: str = "control topic",
        if_missing: str = "create it, or set `control.create: true`, or `control.enabled: false`",
    ) -> None:
        """
        Args:
            what: the kind of topic, for people.
            if_missing: the remedy where the topic is missing, and is not to be made.
        """
        self._cluster, self._topic, self._id, self._timeout = cluster, topic, transactional_id, timeout
        self._what, self._if_missing = f"{what} {topic}", if_missing
        self._producer: Producer | None = None
        self._groups = dict[str, object]()

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
            # After this time Kafka ends a dead writer's transaction, which blocks readers, if no newer writer does.
            "transaction.timeout.ms": int(self._timeout * 1000),
            # librdkafka requires that this is not longer than the one above.
            "socket.timeout.ms": int(self._timeout * 1000),
            "compression.type": "gzip",
            # No limit but that of the topic: a dead letter may be as large as its record.
            "message.max.bytes": 1_000_000_000,
        }
        with kafka_errors(self._what):
            self._ensure(create)
            producer = Producer(settings, logger=_LOG)
            # librdkafka asks for a transaction's coordinator at once, then every half second: be connected by then. The
            # first answer comes from the bootstrap address, which is left for the brokers; the second from one of them.
            for _ in range(2):
                producer.list_topics(self._topic, self._timeout)
            producer.init_transactions(self._timeout)
            self._producer = producer

    def send_messages(
        self, messages: Iterable[Message], progress: Sequence[GroupProgress], before_commit: Callable[[], None]
    ) -> None:
        """Sends messages and commits group offsets, all or nothing.

        Args:
            messages: read one by one while they are sent.
            before_commit: called when everything is written and nothing is committed.

        Raises:
            Interrupted: a newer writer of this id has been opened. Unavailable: not committed, or not known to be.
        """
        assert self._producer, "open it first"
        producer, deadline = self._producer, time.monotonic() + self._timeout
        with kafka_errors(self._what):
            producer.begin_transaction()
            try:
                self._write(producer, messages, progress, deadline)
                before_commit()
                producer.commit_transaction(_left(deadline))
            except BaseException:
                # A producer may be unable to begin again after a failure (sequence numbers are missing: tried).
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
            for group in dict.fromkeys(one.group for one in progress):
                self._send_offsets(producer, group, [one for one in progress if one.group == group], _left(deadline))
            producer.flush(_left(deadline))
        except KafkaException as problem:
            raise _first_failure(producer, problem) from None

    def _produce(self, producer: Producer, message: Message, deadline: float) -> None:
        # No delivery callback: a fenced producer's error would be raised into it. The commit reports it.
        headers: list[tuple[str, str | bytes | None]] = list(message.headers)
        while True:
            try:
                producer.produce(self._topic, message.value, message.key, headers=headers, timestamp=message.timestamp)
                return
            except BufferError:  # the producer's queue is full
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                producer.poll(0.1)

    def _send_offsets(self, producer: Producer, group: str, progress: Sequence[GroupProgress], timeout: float) -> None:
        wanted = dict[TopicPartition, _TopicPartition]()
        for one in progress:
            said = set[str]()
            for tp, offset in one.offsets.items():
                wanted[tp] = _TopicPartition(*tp, offset, "" if tp.topic in said else one.metadata)
                said.add(tp.topic)
        if not wanted:
            return
        if group not in self._groups:
            # Only the group's name, since its member never joins: it stays the same.
            with group_member(self._cluster, group, timeout) as member:
                self._groups[group] = member.consumer_group_metadata()
        producer.send_offsets_to_transaction([*wanted.values()], self._groups[group], timeout)

    def _ensure(self, create: bool) -> None:
        try:
            self._cluster.topics([self._topic], None)
        except TopicMissing:
            if not create:
                raise TopicMissing(
                    f"the {self._what} does not exist, or this user may not see it",
                    where=f"connection {self._cluster.name}",
                    remedy=self._if_missing,
                    topic=self._topic,
                ) from None
            self._cluster.create_topic(self._topic)


def _first_failure(producer: Producer, problem: KafkaException) -> KafkaException:
    """The error that failed this transaction: in such a state `begin_transaction` raises it."""
    if problem.args[0].code() not in _FAILED_BEFORE:
        return problem
    try:
        producer.begin_transaction()
    except KafkaException as reason:
        return problem if reason.args[0].code() in _FAILED_BEFORE else reason
    return problem


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.1)

"""A Kafka cluster: its topics, partitions and offsets."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as _TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewTopic

from resources.connections import KafkaConnection
from resources.errors import BatchmergeError, TopicMissing, Unavailable
from resources.kafka_errors import UNKNOWN, kafka_errors, says_why
from resources.kafka_offsets import ASKING, EARLIEST, LATEST, UNGROUPED, list_offsets
from resources.kafka_security import carried_certificate, librdkafka_settings
from resources.msk_tokens import MskTokens
from resources.topic_partition import TopicPartition

T = TypeVar("T")
C = TypeVar("C", AdminClient, Consumer)

# librdkafka prints to stderr unless it is given a logger; its lines name brokers, never credentials.
_LOG = logging.getLogger("batchmerge.kafka")
# But they repeat what an identity provider answers, and some repeat what they were sent. The status stays.
_ANSWER = re.compile(r'(?<=token from )("[^"]*": ).*?(\(-?\d+\))?$', re.DOTALL)


def _without_answer(record: logging.LogRecord) -> bool:
    record.msg, record.args = _ANSWER.sub(r"\1\2", record.getMessage()), None
    return True


_LOG.addFilter(_without_answer)

# Milliseconds. Each client of librdkafka waits for half of them before its first connection to a broker, and twice as
# long after each failure.
_BACKOFF_MS = 20

# Clients outlive their cluster a little: librdkafka 2.16 may crash where one is dropped right after an answer.
_RECENT: deque[AdminClient | Consumer] = deque(maxlen=16)

# Seconds until a topic without leaders counts as unread: a new one has them sooner.
_LEADERS_COME = 3.0


class KafkaCluster:
    """One cluster of the connections file."""

    def __init__(self, name: str, connection: KafkaConnection, carried: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._connection = connection
        # On a worker of Spark, which does not have the client certificate's files.
        self._carried = carried
        by_iam = connection.sasl_mechanism == "AWS_MSK_IAM"
        self._tokens = MskTokens(f"connection {name}", connection) if by_iam else None
        self.timeout = connection.timeout_seconds
        self._clients: list[AdminClient | Consumer] = []
        self._refusal: KafkaError | None = None

    def __reduce__(self) -> tuple[type[KafkaCluster], tuple[str, KafkaConnection, Mapping[str, str]]]:
        """Without the client, which each worker of Spark opens for itself, and without tokens, which it signs."""
        return KafkaCluster, (self.name, self._connection, carried_certificate(self._connection))

    def _notice(self, problem: KafkaError) -> None:
        """Called by librdkafka with the reason; a request only learns that no broker could be reached."""
        self._refusal = self._refusal or (problem if says_why(problem) else None)

    @cached_property
    def _admin(self) -> AdminClient:
        return self._client(AdminClient, {})

    @cached_property
    def _consumer(self) -> Consumer:
        """Asks for offsets; assigned to nothing."""
        return self._client(Consumer, ASKING)

    def _client(self, kind: Callable[..., C], settings: Mapping[str, Any]) -> C:
        with self._errors("cluster"):
            client = kind({**self.client_settings(), **settings, "error_cb": self._notice}, logger=_LOG)
        self._clients.append(client)
        _RECENT.append(client)
        return client

    def client_settings(self) -> dict[str, Any]:
        """Settings of a librdkafka client. May hold secrets: never log them.

        Raises:
            ConfigurationError, Unavailable: AWS gives no token (`AWS_MSK_IAM`).
        """
        c = self._connection
        if self._tokens:
            self._tokens.current()  # raises here: a client whose callback fails says after 10 s that it did, not why
        return {
            "bootstrap.servers": c.bootstrap_servers,
            "socket.timeout.ms": int(self.timeout * 1000),
            "reconnect.backoff.ms": _BACKOFF_MS,
            **librdkafka_settings(c, self._carried),
            **{name: value.get_secret_value() for name, value in c.settings.items()},
            **({"oauth_cb": self._tokens.current} if self._tokens else {}),
        }

    def topic_names(self) -> set[str]:
        """All topics that this user may see, without Kafka's own."""
        with self._errors("topics"):
            return set(self._admin.list_topics(timeout=self.timeout).topics) - _INTERNAL

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of those of the topics that exist, by one request."""
        with self._errors("topics"):
            known = self._admin.list_topics(timeout=self.timeout).topics
        return [TopicPartition(name, number) for name in topics if name in known for number in known[name].partitions]

    def topics(self, names: Iterable[str], pattern: str | None, own: Collection[str] = ()) -> list[str]:
        """The topics of that name, or those that match the pattern as a whole, sorted.

        Args:
            own: topics that the reader writes to itself: a pattern leaves them out.

        Raises:
            TopicMissing: a named topic does not exist, or none matches.
        """
        known = self.topic_names()
        if pattern is not None:
            matching = sorted(t for t in known - set(own) if re.fullmatch(pattern, t))
            if not matching:
                raise TopicMissing(
                    f"no topic matches {pattern!r}", where=f"connection {self.name}", remedy="check `source.pattern`"
                )
            return matching
        for name in names:
            if name not in known:
                raise self._missing(name)
        return sorted(names)

    def _missing(self, topic: str) -> TopicMissing:
        return TopicMissing(
            f"topic {topic} does not exist, or this user may not see it",
            where=f"connection {self.name}",
            remedy="create the topic, or correct `source.topics` or the permissions",
            topic=topic,
        )

    def describe(self, topics: list[str]) -> tuple[dict[str, str], list[TopicPartition]]:
        """Kafka's id per topic, and all their partitions.

        Raises:
            TopicMissing: a topic does not exist. ConfigurationError: this user may not see it.
        """
        with self._errors("topics"):
            found = self._admin.describe_topics(TopicCollection(topics), request_timeout=self.timeout)
            return _ids_and_partitions({name: self._described(name, future) for name, future in found.items()})

    def _described(self, topic: str, future: Future[TopicDescription]) -> TopicDescription:
        with self._errors(f"topic {topic}"):
            try:
                return self._result(future)
            except KafkaException as problem:
                if problem.args[0].code() in UNKNOWN:
                    raise self._missing(topic) from None
                raise

    def describe_each(
        self, topics: list[str]
    ) -> tuple[dict[str, str], list[TopicPartition], dict[str, BatchmergeError]]:
        """As `describe` for those of the topics that can be read now, and the errors of the others.

        A topic with a partition that has no leader is not: asking that partition takes the whole time limit, for all
        topics of the request. A new topic gets its leaders in a moment, so all together are waited for shortly.
        """
        found, failed = dict[str, TopicDescription](), dict[str, BatchmergeError]()
        leaderless, until = set(topics), time.monotonic() + _LEADERS_COME
        while leaderless:
            with self._errors("topics"):
                futures = self._admin.describe_topics(TopicCollection([*leaderless]), request_timeout=self.timeout)
            for name, future in futures.items():
                try:
                    found[name] = self._described(name, future)
                except BatchmergeError as problem:
                    failed[name] = problem
            leaderless = {name for name in leaderless - failed.keys() if _without_leader(found[name])}
            if leaderless and time.monotonic() > until:
                break
            if leaderless:
                time.sleep(0.2)
        for name in leaderless:
            failed[name] = Unavailable(
                f"partitions without a leader: {', '.join(map(str, _without_leader(found[name])))}",
                where=f"connection {self.name} ({self._connection.bootstrap_servers}), topic {name}",
                remedy="bring the brokers of these partitions back",
            )
        return *_ids_and_partitions({name: found[name] for name in topics if name not in failed}), failed

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there, per partition."""
        return _offsets(self._list(partitions, EARLIEST))

    def stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The last stable offset per partition: everything before it is decided (`read_committed`)."""
        return self.stable_ends(partitions)[0]

    def stable_ends(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The last stable offset per partition; and its leader's epoch, if the broker says it."""
        found = self._list(partitions, LATEST)
        epochs = {
            p: one.leader_epoch
            for p, one in found.items()
            if one.leader_epoch is not None  # type: ignore[redundant-expr]  # its code gives None
        }
        return _offsets(found), epochs

    def cut_off(self, positions: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int | None]:
        """The partitions whose log was cut off below these offsets, with the offset of the cut.

        Each position has the leader's epoch in which it was the end of the log: librdkafka asks the leader where that
        epoch ends before it fetches (KIP-320). Nothing is read or committed. None: the message does not name the cut.

        Raises:
            Unavailable: a partition has not answered in time.
        """
        settings = {**self.client_settings(), **_LOOKING}
        with self._errors("leader epochs"), closing(Consumer(settings, logger=_LOG)) as consumer:
            consumer.assign([_TopicPartition(*p, offset, leader_epoch=e) for p, (offset, e) in positions.items()])
            return self._cuts(consumer, set(positions))

    def _cuts(self, consumer: Consumer, waiting: set[TopicPartition]) -> dict[TopicPartition, int | None]:
        cuts: dict[TopicPartition, int | None] = {}
        until = time.monotonic() + self.timeout
        while waiting:
            if time.monotonic() > until:
                raise TimeoutError
            message = consumer.poll(0.2)
            if message is None or message.partition() is None:
                continue
            where, problem = TopicPartition(str(message.topic()), message.partition() or 0), message.error()
            if problem and problem.code() in _CUT and "truncation" in problem.str():
                said = re.search(r"end offset is (\d+)", problem.str())
                cuts[where] = int(said[1]) if said else None
            elif problem and problem.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(problem)  # nobody knows whether it was cut off
            waiting.discard(where)
        return cuts

    def offsets_at(self, partitions: Iterable[TopicPartition], milliseconds: int) -> dict[TopicPartition, int]:
        """The first offset at or after that time, per partition; the end where there is none."""
        at = _offsets(self._list(partitions, milliseconds))
        missing = [p for p, offset in at.items() if offset < 0]
        return {**at, **(self.stable_offsets(missing) if missing else {})}

    def create_topic(self, name: str) -> None:
        """Creates a topic with one partition, replicated as the cluster's default says; nothing where it exists."""
        with self._errors(f"topic {name}"):
            new = NewTopic(name, num_partitions=1, replication_factor=-1)
            future = self._admin.create_topics([new], request_timeout=self.timeout)[name]
            try:
                self._result(future)
            except KafkaException as problem:
                if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def group_members(self, group: str) -> int:
        """How many members a consumer group has now; 0 where there is no such group.

        By the older request, to all brokers: the newer one may crash the process (`resources.kafka_groups`).
        """
        with self._errors(f"consumer group {group}"):
            return sum(len(found.members) for found in self._admin.list_groups(group, self.timeout))

    def _list(self, partitions: Iterable[TopicPartition], milliseconds: int) -> dict[TopicPartition, _TopicPartition]:
        with self._errors("offsets"):
            return list_offsets(self._consumer, partitions, milliseconds, self.timeout)

    def _result(self, future: Future[T]) -> T:
        return future.result(timeout=self.timeout + 5)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        where = f"connection {self.name} ({self._connection.bootstrap_servers}), {what}"
        with kafka_errors(where):
            try:
                yield
                self._refusal = None  # an earlier refusal has passed
            except KafkaException as problem:
                if not says_why(problem.args[0]):
                    for client in self._clients:
                        client.poll(0.1)
                    if self._refusal:
                        raise KafkaException(self._refusal) from None
                raise


def _ids_and_partitions(described: dict[str, TopicDescription]) -> tuple[dict[str, str], list[TopicPartition]]:
    ids = {name: str(d.topic_id) for name, d in described.items()}
    return ids, [TopicPartition(name, p.id) for name, d in sorted(described.items()) for p in d.partitions]


def _offsets(found: Mapping[TopicPartition, _TopicPartition]) -> dict[TopicPartition, int]:
    return {tp: one.offset for tp, one in found.items()}


def _without_leader(described: TopicDescription) -> list[int]:
    """The partitions that have no leader now."""
    leaders: dict[int, Any] = {p.id: p.leader for p in described.partitions}
    return [number for number, leader in leaders.items() if leader is None or leader.id < 0]


# A consumer that only looks: hardly anything is fetched.
_LOOKING = {
    **UNGROUPED,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 1000,
    # Milliseconds until librdkafka asks again for partitions that have not answered. Its default is a second, in which
    # it asks for a few partitions only.
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 10,
}
_CUT = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)

# Kafka's own; a consumer that subscribes to a pattern leaves them out as well (`exclude.internal.topics`).
_INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}

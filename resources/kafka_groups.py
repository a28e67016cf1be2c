"""Consumer groups that mirror our progress: offsets with metadata, committed and read without joining.

By a consumer, never by librdkafka's admin client: that one crashes the process if a broker dies while it looks for a
group's coordinator (its issues 4605 and 5040).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as _TopicPartition

from resources.kafka import KafkaCluster
from resources.kafka_errors import kafka_errors, refuses, settled
from resources.topic_partition import TopicPartition

T = TypeVar("T")
_LOG = logging.getLogger("batchmerge.kafka")
# Seconds after which to look why a consumer gets no answer.
_SLICE = 1.0
_WAITING = {KafkaError._TIMED_OUT, KafkaError._WAIT_COORD, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


def group_offsets(cluster: KafkaCluster, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The committed offsets of a consumer group for those of the partitions that have one.

    Raises:
        Unavailable, ConfigurationError.
    """
    found = _committed(cluster, group, partitions, cluster.timeout)
    return {TopicPartition(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}


def group_metadata(
    cluster: KafkaCluster, group: str, partitions: Iterable[TopicPartition], timeout: float
) -> dict[TopicPartition, str]:
    """The metadata that was committed with a group's offsets; empty where there is no such group.

    Raises:
        Unavailable, ConfigurationError.
    """
    found = _committed(cluster, group, partitions, timeout)
    return {TopicPartition(tp.topic, tp.partition): tp.metadata for tp in found if tp.metadata}


def commit_group(cluster: KafkaCluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Sets the offsets of a consumer group that has no members; what every lag exporter then shows.

    Raises:
        Unavailable, ConfigurationError.
    """
    wanted = [_TopicPartition(*partition, offset) for partition, offset in sorted(offsets.items())]
    if not wanted:
        return
    with _asked(cluster, group, cluster.timeout) as member:
        # This request finds the coordinator; a commit without one would wait silently.
        _patient(member, cluster.timeout, lambda seconds: member.committed(wanted[:1], seconds))
        done = settled(lambda: member.commit(offsets=wanted, asynchronous=False), cluster.timeout)
        _require_each(done or [])


def group_member(cluster: KafkaCluster, group: str, timeout: float) -> closing[Consumer]:
    """A consumer that never joins its group, for a `with` block."""
    settings = {
        **cluster.client_settings(),
        "group.id": group,
        # The newest committed offsets, also while a transaction is under way.
        "isolation.level": "read_uncommitted",
        # How long a commit waits for the group's coordinator.
        "session.timeout.ms": int(timeout * 1000),
    }
    return closing(Consumer(settings, logger=_LOG))


@contextmanager
def _asked(cluster: KafkaCluster, group: str, timeout: float) -> Iterator[Consumer]:
    with kafka_errors(f"connection {cluster.name}, consumer group {group}"), group_member(cluster, group, timeout) as m:
        yield m


def _committed(
    cluster: KafkaCluster, group: str, partitions: Iterable[TopicPartition], timeout: float
) -> list[_TopicPartition]:
    wanted = [_TopicPartition(*partition) for partition in partitions]
    if not wanted:
        return []
    with _asked(cluster, group, timeout) as member:
        return _require_each(_patient(member, timeout, lambda seconds: member.committed(wanted, seconds)))


def _patient(member: Consumer, timeout: float, ask: Callable[[float], T]) -> T:
    """The answer within the time limit. A refusal ends the wait, while librdkafka itself would go on trying."""

    def once() -> T:
        try:
            return ask(_SLICE)
        except KafkaException:
            heard = member.poll(0)
            if heard is not None and (error := heard.error()) is not None and refuses(error):
                raise KafkaException(error) from None
            raise

    return settled(once, timeout, _WAITING)


def _require_each(found: list[_TopicPartition]) -> list[_TopicPartition]:
    """Each partition may have an error of its own in an answer that as a whole has none."""
    for tp in found:
        if tp.error is not None:
            raise KafkaException(tp.error)
    return found

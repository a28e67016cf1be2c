"""Reads the state of topics from Kafka."""

from __future__ import annotations

import time
from types import MappingProxyType

from jobs.offsets import Offsets, TopicPartition
from jobs.planning.plan import TopicState
from resources.errors import BatchmergeError
from resources.kafka import KafkaCluster

_NOTHING: Offsets = MappingProxyType({})


def topic_state(kafka: KafkaCluster, topics: list[str], read: Offsets = _NOTHING) -> TopicState:
    """The present state of these topics, read with a few requests, however many topics there are.

    Args:
        read: the next offset of topic-partitions. Where Kafka has nothing more, that also counts as its first offset.
    """
    asked_at = int(time.time() * 1000)
    return _state(kafka, *kafka.describe(topics), asked_at, read)


def topic_state_of_each(kafka: KafkaCluster, topics: list[str]) -> tuple[TopicState, dict[str, BatchmergeError]]:
    """As `topic_state`, for those of the topics that Kafka can describe; and the errors of the others."""
    asked_at = int(time.time() * 1000)
    ids, partitions, failed = kafka.describe_each(topics)
    return _state(kafka, ids, partitions, asked_at), failed


def _state(
    kafka: KafkaCluster, ids: dict[str, str], partitions: list[TopicPartition], asked_at: int, read: Offsets = _NOTHING
) -> TopicState:
    stable, epochs = kafka.stable_ends(partitions)
    waiting = sorted(dict(stable.items() - read.items()))
    first = {**stable, **kafka.first_offsets(waiting)} if waiting else stable
    return TopicState(first, stable, ids, epochs, asked_at)

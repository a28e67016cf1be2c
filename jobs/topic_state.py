"""Reads the state of topics from Kafka."""

from __future__ import annotations

import time

from jobs.plan import TopicState
from resources.kafka import KafkaCluster


def topic_state(kafka: KafkaCluster, topics: list[str]) -> TopicState:
    """The present state of these topics, read with a few requests, however many topics there are."""
    asked_at = int(time.time() * 1000)
    ids, partitions = kafka.describe(topics)
    stable, epochs = kafka.stable_ends(partitions)
    return TopicState(kafka.first_offsets(partitions), stable, ids, epochs, asked_at)

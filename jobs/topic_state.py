"""What Kafka has for topics now."""

from __future__ import annotations

from jobs.plan import TopicState
from resources.kafka import KafkaCluster


def topic_state(kafka: KafkaCluster, topics: list[str]) -> TopicState:
    """Asked in a few questions, however many topics they are."""
    ids, partitions = kafka.describe(topics)
    stable, epochs = kafka.stable_ends(partitions)
    return TopicState(kafka.first_offsets(partitions), stable, ids, epochs)

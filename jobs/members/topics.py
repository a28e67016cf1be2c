"""The topics in Kafka of a pipeline with `source.for_each`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.planning.plan import TopicState
from jobs.planning.topic_state import topic_state_of_each
from jobs.spec.members import Member
from resources.errors import BatchmergeError, TopicMissing
from resources.kafka import KafkaCluster


@dataclass(frozen=True)
class Seen:
    """The topics that Kafka has for the members now.

    Attributes:
        failed: topics that cannot be read or cannot become a member, and why.
        appeared: topics that are new.
    """

    members: Sequence[Member]
    states: dict[str, TopicState]
    failed: dict[str, BatchmergeError] = field(default_factory=dict)
    appeared: Sequence[str] = ()


def states_of(kafka: KafkaCluster, topics: list[str]) -> tuple[dict[str, TopicState], dict[str, BatchmergeError]]:
    """The state of each topic, and the errors of those that fail. One request for all; if it fails as a whole, one for
    each."""
    if not topics:
        return {}, {}
    try:
        state, unread = topic_state_of_each(kafka, topics)
        return state.by_topic(), unread
    except BatchmergeError as problem:
        if len(topics) == 1:
            return {}, {topics[0]: problem}
    found: dict[str, TopicState] = {}
    failed: dict[str, BatchmergeError] = {}
    for topic in topics:
        states, problems = states_of(kafka, [topic])
        found |= states
        failed |= problems
    return found, failed


def missing(topic: str, pipeline: str) -> TopicMissing:
    return TopicMissing(
        f"topic {topic} does not exist, or this user may not see it",
        where=f"pipeline {pipeline}",
        remedy="create the topic, or correct `source.topics` or the permissions",
        topic=topic,
    )

"""What was published: reads a control topic to its end, and says what must be on it for the batches that are landed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from jobs.events.messages import CommitTable, Event
from jobs.events.reading import read_events
from jobs.pipeline import Pipeline
from resources.connections import Connections, KafkaConnection
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_offsets
from resources.topic_partition import TopicPartition
from tests.kit.records import bootstrap
from tests.kit.topics import until_decided
from tests.kit.waiting import PATIENCE

_OF_LANDING = ["commit_request", "commit_response", "commit_ready"]


def cluster(connections: Connections) -> KafkaCluster:
    return KafkaCluster("kafka", connections.get("kafka", KafkaConnection))


def events(connections: Connections, topic: str, cursor: str | None = None) -> list[Event]:
    """All committed events, in their order."""
    until_decided(bootstrap(connections), topic)
    found: list[Event] = []
    while True:
        some, cursor = read_events(cluster(connections), topic, cursor)
        if not some:
            return found
        found.extend(some)


def effective(published: list[Event]) -> list[Event]:
    """The events without repetitions, as a consumer that follows the rules sees them."""
    return list({event.id: event for event in reversed(published)}.values())[::-1]


def check_repeated(published: list[Event]) -> None:
    """Only these may be there twice: the request of a killed run, and what the last two tables complete at once."""
    known = effective(published)
    assert {e.type for e in published if e not in known} <= {"commit_request", "commit_complete"}


def check_all_published(pipeline: Pipeline, published: list[Event], at_once: bool = False) -> None:
    """Every landed batch has each event once, landing's in order; nothing else but requests that were given up.

    Landing's come before the tables', unless several runs were `at_once`: each publishes what the others have left out.
    """
    seen = [event for event in effective(published) if event.group == pipeline.name]
    once = Counter((e.type, e.payload.commit_id, getattr(e.payload, "table", "")) for e in seen)
    assert set(once.values()) == {1}, once
    tables = [destination.table.table for destination in pipeline.destinations()]
    landed = {b.batch.commit_id: b for b in pipeline.intermediate.landed().batches}
    for commit_id, batch in landed.items():
        mine = [e for e in seen if e.payload.commit_id == commit_id]
        types = [e.type for e in mine]
        of_landing = [t for t in types if t in _OF_LANDING] if at_once else types[: len(_OF_LANDING)]
        assert of_landing == _OF_LANDING, (batch.batch, types)
        # A table's events may be late where all tables have the batch already.
        wanted = sorted([*_OF_LANDING, "commit_complete", *["commit_table"] * len(tables)])
        assert sorted(types) == wanted, (batch.batch, types)
        assert sorted(e.payload.table for e in mine if isinstance(e.payload, CommitTable)) == sorted(tables)
    given_up = [e for e in seen if e.payload.commit_id not in landed]
    assert {e.type for e in given_up} <= {"commit_request"}, given_up


def settled_offsets(kafka: KafkaCluster, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """What `group_offsets` gives when no transaction moves them; until that is through it gives the old ones."""
    asks, wanted = {"group.id": group, "isolation.level": "read_committed"}, list(partitions)
    consumer = Consumer({**kafka.client_settings(), **asks})
    try:
        consumer.committed([KafkaPartition(*one) for one in wanted], PATIENCE)
    finally:
        consumer.close()
    return group_offsets(kafka, group, wanted)


def check_groups(pipeline: Pipeline) -> None:
    """Every consumer group has the offsets of its table, and the pipeline's group those of the slowest table."""
    for destination in pipeline.destinations():
        state = destination.committed()
        assert state
        group = f"{pipeline.group}/{destination.table.connection}.{destination.table.table}"
        assert settled_offsets(pipeline.kafka, group, state.offsets) == dict(state.offsets), group
    landed = pipeline.intermediate.committed()
    assert landed
    assert settled_offsets(pipeline.kafka, f"{pipeline.group}/landing", landed.offsets) == dict(landed.offsets)
    assert settled_offsets(pipeline.kafka, pipeline.group, landed.offsets) == dict(landed.offsets)

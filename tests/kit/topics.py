"""Topics and transactions of Kafka, waited for: its answer comes before a broker goes by what it has answered."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kit.waiting import PATIENCE, until


def make_topic(client: AdminClient, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """The controller has made it when it answers; the broker hears of it a moment later, if loaded a long one."""
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    client.create_topics([new])[name].result(timeout=PATIENCE)
    until(lambda: name in client.list_topics(timeout=PATIENCE).topics, what=f"topic {name} at the broker")


def until_decided(servers: str, topic: str) -> None:
    """Waits until no transaction is open. Kafka says that one has ended before readers see its end."""
    settings = {"bootstrap.servers": servers, "group.id": f"looks-{topic}"}
    stable, written = (
        Consumer({**settings, "isolation.level": level}) for level in ("read_committed", "read_uncommitted")
    )

    def is_decided() -> bool:
        return all(
            stable.get_watermark_offsets(place, PATIENCE) == written.get_watermark_offsets(place, PATIENCE)
            for place in places
        )

    try:
        known = stable.list_topics(topic, PATIENCE).topics[topic].partitions  # none where there is no such topic
        places = [TopicPartition(topic, number) for number in known]
        until(is_decided, what=f"end of the transactions in {topic}")
    finally:
        stable.close()
        written.close()

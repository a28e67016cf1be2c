"""The demo's changes through a real broker: everything arrives, each flight in one partition and in its order."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from resources.connections import Connections
from resources.errors import Unavailable
from resources.local.flights.changes import FlightChanges
from resources.local.flights.produce import produce_flights
from resources.local.ports import free_port
from tests.kit.records import bootstrap


@pytest.fixture
def missing_topic(admin: AdminClient) -> Iterator[str]:
    name = f"flights-{uuid.uuid4().hex[:8]}"
    yield name
    admin.delete_topics([name])[name].result(timeout=30)


def _read(servers: str, topic: str, partitions: int, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        messages: list[Message] = []
        while len(messages) < count:
            some = consumer.consume(min(10_000, count - len(messages)), timeout=30)
            assert some, f"only {len(messages)} of {count} records came"
            messages += some
        return messages
    finally:
        consumer.close()


@pytest.mark.slow
def test_a_missing_topic_is_created_and_gets_all_changes(
    connections: Connections, admin: AdminClient, missing_topic: str
) -> None:
    servers = bootstrap(connections)
    seen: list[int] = []
    produced = produce_flights(servers, missing_topic, progress=seen.append)
    expected = list(FlightChanges(1))
    assert (produced.records, produced.partitions) == (81_210, 4)
    assert seen[-1] == 81_210

    found = defaultdict(list)
    for message in _read(servers, missing_topic, 4, 81_210):
        assert message.error() is None
        found[message.partition()].append((message.key(), message.value(), message.timestamp()[1]))
    sent = defaultdict(list)
    partition_of = {key: number for number, part in found.items() for key, *_ in part if key is not None}
    for record in expected:
        sent[partition_of[record.route]].append((record.key, record.value, record.timestamp))
    assert found == sent

    resource = ConfigResource(ConfigResource.Type.TOPIC, missing_topic)
    settings = admin.describe_configs([resource])[resource].result(timeout=30)
    assert settings["retention.ms"].value == "-1"  # the records are years old


def test_an_existing_topic_keeps_its_partitions(connections: Connections, topic: Callable[..., str]) -> None:
    produced = produce_flights(bootstrap(connections), topic(partitions=2), partitions=4)
    assert produced.partitions == 2


def test_no_broker_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resources.local.flights.produce._TIMEOUT", 2)
    address = f"127.0.0.1:{free_port(set())}"
    with pytest.raises(Unavailable, match="see that the broker runs") as refused:
        produce_flights(address, "flights")
    assert address in str(refused.value)

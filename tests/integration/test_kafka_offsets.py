"""Offsets of topic-partitions, as the planner asks for them: the first, the last stable, and those of a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from jobs.offsets import TopicPartition
from resources.connections import Connections, KafkaConnection
from resources.errors import TopicMissing
from resources.kafka import KafkaCluster
from tests.kit.records import bootstrap, produce, put
from tests.kit.waiting import until

MakeTopic = Callable[..., str]


@pytest.fixture
def kafka(connections: Connections) -> KafkaCluster:
    return KafkaCluster("kafka", connections.get("kafka", KafkaConnection))


def test_offsets_of_more_partitions_than_one_request_has(
    kafka: KafkaCluster, connections: Connections, topic: MakeTopic
) -> None:
    one, two = topic(partitions=300), topic(partitions=2)
    servers = bootstrap(connections)
    moment = 1_700_000_000_000
    produce(servers, one, [put(n, partition=n % 300) for n in range(900)], timestamp=moment)
    open_ = Producer({"bootstrap.servers": servers, "transactional.id": one})
    open_.init_transactions(30)
    open_.begin_transaction()
    open_.produce(one, b"not decided", partition=7)
    assert open_.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.delete_records([KafkaPartition(one, 8, 2)]).values():
        done.result(timeout=30)

    partitions = kafka.partitions([one, two])
    stable, epochs = kafka.stable_ends(partitions)
    assert stable == {tp: 3 if tp.topic == one else 0 for tp in partitions}, "what is not decided is not stable"
    assert epochs == dict.fromkeys(partitions, 0)
    assert kafka.first_offsets(partitions) == {tp: 2 if tp == (one, 8) else 0 for tp in partitions}
    assert kafka.offsets_at(partitions, moment) == kafka.first_offsets(partitions[::-1]), "in any order"
    later = kafka.offsets_at(partitions, moment + 1)
    # A time after the last record is the end; the undecided record is of now.
    assert {tp: offset for tp, offset in later.items() if tp != (one, 7)} == {
        tp: offset for tp, offset in stable.items() if tp != (one, 7)
    }
    assert kafka.stable_ends([]) == ({}, {})
    open_.abort_transaction(30)


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside others"])
def test_partitions_that_are_not_there(kafka: KafkaCluster, topic: MakeTopic, others: int) -> None:
    name = topic()
    for gone in (TopicPartition("nobody-made-it", 0), TopicPartition(name, 77)):
        with pytest.raises(TopicMissing, match="no longer knows a topic"):
            kafka.stable_ends([gone, TopicPartition(name, 0)][: 1 + others])


def test_partitions_that_a_topic_has_got_since(kafka: KafkaCluster, connections: Connections, topic: MakeTopic) -> None:
    """The same client asks on, as in a continuous run."""
    name = topic(partitions=1)
    assert kafka.stable_offsets(kafka.describe([name])[1]) == {(name, 0): 0}
    admin = AdminClient({"bootstrap.servers": bootstrap(connections)})
    for done in admin.create_partitions([NewPartitions(name, 3)]).values():
        done.result(timeout=30)
    until(lambda: len(kafka.partitions([name])) == 3, what="the new partitions")
    wanted = kafka.partitions([name])
    assert kafka.stable_offsets(wanted) == kafka.first_offsets(wanted) == {(name, n): 0 for n in range(3)}

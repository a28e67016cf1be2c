"""Asking for offsets, where the consumer remembers less of a topic than Kafka has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from resources.kafka_offsets import LATEST, list_offsets
from resources.topic_partition import TopicPartition


class Remembering:
    """As librdkafka: how many partitions a topic has is asked for once, and again by `list_topics`."""

    def __init__(self, there: int) -> None:
        self.there, self.known, self.looked = there, 0, 0

    def list_topics(self, **_: Any) -> None:
        self.known, self.looked = self.there, self.looked + 1

    def offsets_for_times(self, asked: list[Any], **_: Any) -> list[Any]:
        self.known = self.known or self.there
        unknown = KafkaError(KafkaError._UNKNOWN_PARTITION)
        if all(tp.partition >= self.known for tp in asked):
            raise KafkaException(unknown)
        return [
            SimpleNamespace(
                topic=tp.topic,
                partition=tp.partition,
                offset=7,
                leader_epoch=0,
                error=None if tp.partition < self.known else unknown,
            )
            for tp in asked
        ]


def _of(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in numbers]


@pytest.mark.parametrize("new", [_of(0, 1, 2), _of(2)], ids=["beside others", "alone"])
def test_partitions_that_a_topic_has_got_since_are_found(new: list[TopicPartition]) -> None:
    kafka: Any = Remembering(2)
    assert list_offsets(kafka, _of(0, 1), LATEST, 5).keys() == {*_of(0, 1)}
    kafka.there = 3
    assert {tp: one.offset for tp, one in list_offsets(kafka, new, LATEST, 5).items()} == dict.fromkeys(new, 7)
    assert kafka.looked == 1


def test_partitions_that_are_gone_are_asked_for_twice_and_no_more() -> None:
    kafka: Any = Remembering(2)
    with pytest.raises(KafkaException, match="_UNKNOWN_PARTITION"):
        list_offsets(kafka, _of(0, 77), LATEST, 5)
    assert kafka.looked == 1

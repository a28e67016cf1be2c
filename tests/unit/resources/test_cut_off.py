"""What a consumer's messages show of a log that may have been cut off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from jobs.offsets import TopicPartition
from resources.connections import KafkaConnection
from resources.kafka import KafkaCluster


@dataclass(frozen=True)
class Poll:
    """One message, or an error about its partition."""

    place: int
    problem: KafkaError | None = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.place

    def error(self) -> KafkaError | None:
        return self.problem


@dataclass
class Consumed:
    """Stands for a consumer that has these messages."""

    left: list[Poll]

    def poll(self, _: float) -> Poll:
        return self.left.pop(0)


def cuts(*messages: Poll) -> dict[TopicPartition, int | None]:
    cluster = KafkaCluster("kafka", KafkaConnection(kind="kafka", bootstrap_servers="127.0.0.1:1"))
    return cluster._cuts(cast(Consumer, Consumed(list(messages))), {TopicPartition("t", one.place) for one in messages})


def test_record_or_end_shows_that_nothing_was_cut_off() -> None:
    cut = KafkaError(KafkaError._LOG_TRUNCATION, "truncation was detected, end offset is 7")
    assert cuts(Poll(0), Poll(1, KafkaError(KafkaError._PARTITION_EOF)), Poll(2, cut)) == {TopicPartition("t", 2): 7}


def test_another_error_is_no_answer() -> None:
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        cuts(Poll(0), Poll(1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))

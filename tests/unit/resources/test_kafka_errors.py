"""Which of Kafka's answers are asked for again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from resources.kafka_errors import settled


def test_moving_leaders_are_waited_for() -> None:
    answers = [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH]

    def ask() -> str:
        if answers:
            raise KafkaException(KafkaError(answers.pop(0)))
        return "done"

    assert settled(ask, 60) == "done"


def test_other_answers_are_final() -> None:
    def ask() -> str:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(KafkaException):
        settled(ask, 60)

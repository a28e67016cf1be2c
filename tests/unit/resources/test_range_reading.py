"""How long is waited for what librdkafka skips in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException

from resources.range_reading import _RangeReader, _Unread
from resources.topic_partition import TopicPartition

TP = TopicPartition("t", 3)


class Skipping:
    """A consumer that has no records, only statistics: these offsets, poll by poll."""

    def __init__(self, unread: _Unread, offsets: Iterator[int]) -> None:
        self.unread, self.offsets = unread, offsets

    def poll(self, _seconds: float) -> None:
        partitions = {"-1": {"next_offset": 0}, "3": {"next_offset": next(self.offsets)}}
        self.unread.note(json.dumps({"topics": {"t": {"partitions": partitions}}}))


def read(*offsets: int) -> None:
    unread = _Unread({TP: (0, 100)})
    consumer: Any = Skipping(unread, iter(offsets))
    assert list(_RangeReader("kafka", -1, unread).until_end(consumer)) == []


def test_who_gets_further_is_waited_for() -> None:
    read(-1001, 10, 20, 99, 100)
    with pytest.raises(KafkaException):
        read(10, 20, 20, 100)

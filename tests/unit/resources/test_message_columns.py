"""Offsets of messages of one topic-partition, which compaction and transactions leave gaps in."""

from __future__ import annotations

import pytest
from confluent_kafka import Message

from resources.message_columns import offsets_of_one


@pytest.mark.parametrize("offsets", [[], [7], [7, 8, 9], [7, 9, 10], [0, 5]], ids=str)
def test_offsets_of_one_topic_partition(offsets: list[int]) -> None:
    messages = [Message(topic="t", partition=0, offset=offset) for offset in offsets]
    assert offsets_of_one(messages).tolist() == offsets

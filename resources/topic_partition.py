"""One partition of one topic, as Kafka's clients here and all of `jobs` name it."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """Sorts by topic, then partition: the order that `i` follows."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

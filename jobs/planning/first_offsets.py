"""The first offsets of topic-partitions that were never read (`source.start`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from jobs.offsets import Offsets, TopicPartition
from jobs.planning.plan import TopicState
from jobs.spec.source import FromOffsets, FromTimestamp, Start
from resources.errors import ConfigurationError

OffsetsAt = Callable[[list[TopicPartition], datetime], Offsets]


def first_offsets(
    pipeline: str, start: Start, partitions: list[TopicPartition], topics: TopicState, offsets_at: OffsetsAt
) -> Offsets:
    """The first offset of each of these partitions.

    Args:
        offsets_at: queries Kafka for the offsets at or after an instant.

    Raises:
        ConfigurationError: an offset is named for a partition that Kafka does not have.
    """
    if isinstance(start, FromTimestamp):
        instant = start.timestamp if start.timestamp.tzinfo else start.timestamp.replace(tzinfo=UTC)
        # Without such a record, or with one beyond the planned ends, begin at the ends: all records there are later.
        return {tp: min(offset, topics.stable[tp]) for tp, offset in offsets_at(partitions, instant).items()}
    if not isinstance(start, FromOffsets):
        known = topics.first if start == "earliest" else topics.stable
        return {tp: known[tp] for tp in partitions}
    named = {TopicPartition(t, p): o for t, ps in start.offsets.items() for p, o in ps.items()}
    unknown = sorted(tp for tp in named if tp not in topics.stable)
    if unknown:
        raise ConfigurationError(
            f"`source.start.offsets` names {', '.join(map(str, unknown[:5]))}, which Kafka does not have",
            where=f"pipeline {pipeline}",
            remedy="correct the topic or partition in `source.start.offsets`",
        )
    return {tp: named.get(tp, topics.first[tp]) for tp in partitions}

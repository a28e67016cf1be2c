"""Reads topics to their last stable offsets, a bounded part at a time."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import pyarrow as pa

from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster
from resources.kafka_records import WantedHeaders, records_schema
from resources.range_reading import read_ranges
from resources.topic_partition import TopicPartition


@dataclass(frozen=True)
class MessagePage:
    """Messages in the order of their partitions, and the cursor to go on from."""

    messages: list[bytes]
    cursor: str


def read_messages(cluster: KafkaCluster, topic: str, cursor: str | None, limit: int, seconds: float) -> MessagePage:
    """Committed messages after the cursor; ends at the last stable offset, at `limit` messages or after `seconds`.

    Args:
        cursor: that of an earlier call; None: from the first message that is still there. Where the topic has been
            recreated since, reading begins at its first message.

    Raises:
        TopicMissing, TransientError, ConfigurationError: also for an invalid cursor.
    """
    until = time.monotonic() + seconds
    topic_id, first, ends = _state(cluster, topic)
    after = _parse_cursor(cursor, topic_id)
    messages: list[bytes] = []
    for tp in first:
        known = after.get(tp.partition, 0)
        # A cursor beyond the end: a new leader has cut the log off, and other messages come in its place.
        at = first[tp] if known > ends[tp] else max(first[tp], known)
        # Several times, since some offsets have no message (markers, aborted transactions).
        while at < ends[tp] and len(messages) < limit and time.monotonic() < until:
            stop = min(ends[tp], at + limit)
            records = _read(cluster, {tp: (at, stop)})
            taken = records.slice(0, limit - len(messages))
            messages += [value or b"" for value in taken["value"].to_pylist()]
            at = after[tp.partition] = taken["offset"][-1].as_py() + 1 if len(taken) < len(records) else stop
    text = json.dumps({"topic_id": topic_id, "offsets": {str(p): o for p, o in sorted(after.items())}})
    return MessagePage(messages, text)


def read_to_end(cluster: KafkaCluster, topic: str) -> pa.Table:
    """All committed records of a topic up to its last stable offsets. Raises TopicMissing, TransientError."""
    _, first, ends = _state(cluster, topic)
    return _read(cluster, {tp: (first[tp], ends[tp]) for tp in first})


def newest_records(cluster: KafkaCluster, topic: str, count: int, headers: WantedHeaders = False) -> pa.Table:
    """Up to `count` of the newest records of all partitions, with these headers.

    Raises:
        TopicMissing, TransientError, ConfigurationError.
    """
    _, first, ends = _state(cluster, topic)
    share = max(1, count // max(1, sum(ends[tp] > first[tp] for tp in first)))
    newest = {tp: (max(first[tp], ends[tp] - share), ends[tp]) for tp in first}
    return _read(cluster, newest, headers).slice(0, count)


def _state(cluster: KafkaCluster, topic: str) -> tuple[str, dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The topic's id, and by partition, in their order, the first and the last stable offset."""
    ids, partitions = cluster.describe([topic])
    first, ends = cluster.first_offsets(partitions), cluster.stable_offsets(partitions)
    return ids[topic], {tp: first[tp] for tp in sorted(partitions)}, ends


def _read(
    cluster: KafkaCluster, ranges: dict[TopicPartition, tuple[int, int]], headers: WantedHeaders = False
) -> pa.Table:
    return pa.Table.from_batches(read_ranges(cluster, ranges, headers), records_schema(headers))


def _parse_cursor(cursor: str | None, topic_id: str) -> dict[int, int]:
    if cursor is None:
        return {}
    try:
        found = json.loads(cursor)
        if found["topic_id"] != topic_id:
            return {}
        return {int(p): int(o) for p, o in found["offsets"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigurationError(
            "not a cursor of the control topic", where=cursor[:80], remedy="reset the cursor"
        ) from None

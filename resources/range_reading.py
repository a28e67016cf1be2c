"""Reads offset ranges of topic-partitions with one consumer, as Arrow: committed records only, exactly those ranges.

librdkafka fetches and decompresses in a thread of its own, and one consumer reads thousands of ranges as well as one.
Records are judged by column, as they are converted (`message_columns`).

While librdkafka skips records of aborted transactions, perhaps gigabytes, it reports nothing. Its statistics say how
far it is: `next_offset` moves only after what lies before it is in our queue. They are asked for only after a silence:
for them librdkafka has a timer for each partition of the topics, and walks through all others to set one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as _TopicPartition

from resources.errors import TransientError
from resources.kafka import KafkaCluster
from resources.kafka_errors import kafka_errors, refuses, says_why
from resources.kafka_offsets import UNGROUPED
from resources.kafka_records import WantedHeaders
from resources.message_columns import Numbers, in_columns, offsets_of, offsets_of_one
from resources.topic_partition import TopicPartition

_LOG = logging.getLogger("batchmerge.kafka")
# Most messages that one call of the consumer returns, after the first one: they stay in the processor's cache.
_AT_ONCE = (4 << 10) - 1
# Seconds that a call waits for the first message.
_WAIT_SECONDS = 1.0
# Seconds of silence until librdkafka is asked for statistics, and between two of them: with thousands of partitions
# they are megabytes.
_STATISTICS_SECONDS = 5.0
# An Arrow batch ends when it has this many rows, as many as are decoded together,
_ROWS = 16 << 10
# or this many bytes of keys and values.
_BYTES = 16 << 20
# Ranges of at most this many offsets are small: after its end a partition may have many records that nobody needs.
_SMALL = 5_000
# Bytes that a broker sends of a partition at a time if all ranges are small,
_FETCH_SMALL = 256 << 10
# and otherwise.
_FETCH_LARGE = 2 << 20
_SETTINGS = {
    **UNGROUPED,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # The broker holds a fetch back for this time where a partition has nothing more, others waiting behind it.
    "fetch.wait.max.ms": 10,
    # At most this much is fetched ahead of us: what lies beyond the end of a range is fetched in vain.
    "queued.min.messages": 2 * _ROWS,
    "queued.max.messages.kbytes": 64 << 10,
    # Fetch on as soon as there is room; a second would pass otherwise.
    "fetch.queue.backoff.ms": 5,
}
# Errors that say: what Kafka had when the batch was planned is gone.
_GONE = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)


def read_ranges(
    cluster: KafkaCluster, ranges: Mapping[TopicPartition, tuple[int, int]], headers: WantedHeaders = False
) -> Iterator[pa.RecordBatch]:
    """The records of ``[start, end)`` of each topic-partition, as they come; within a partition by offset.

    Out: the columns of `resources.kafka_records.records_schema`.

    Raises:
        TransientError: Kafka does not have the offsets any more. Unavailable: nothing has come for as long as the
            connection waits for an answer. ConfigurationError.
    """
    wanted = {tp: offsets for tp, offsets in ranges.items() if offsets[0] < offsets[1]}
    if not wanted:
        return
    known = cluster.client_settings()
    where, seconds = f"connection {cluster.name} ({known['bootstrap.servers']})", int(known["socket.timeout.ms"]) / 1000
    small = max(end - start for start, end in wanted.values()) <= _SMALL
    unread, silence = _Unread(wanted), min(_STATISTICS_SECONDS, seconds / 3)
    reader = _RangeReader(where, seconds, unread)
    fetch = {
        "error_cb": lambda error: reader.heard.append(error) if says_why(error) else None,
        "fetch.message.max.bytes": _FETCH_SMALL if small else _FETCH_LARGE,
    }
    statistics = {"statistics.interval.ms": int(silence * 1000), "stats_cb": unread.note}

    def read(until: Callable[[Consumer], Iterator[_Records]], more: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        with closing(Consumer({**known, **_SETTINGS, **fetch, **more}, logger=_LOG)) as consumer:
            consumer.assign(unread.positions)
            yield from _in_batches(until(consumer), unread, headers)

    with kafka_errors(where):
        yield from read(lambda consumer: reader.until_silence(consumer, silence), {})
        if unread:
            yield from read(reader.until_end, statistics)


@dataclass(frozen=True)
class _Records:
    """Some records of the ranges.

    Attributes:
        places: the number of each record's topic-partition (`_Unread`).
    """

    messages: Sequence[Message]
    offsets: Numbers
    places: Numbers


class _Unread:
    """How far the ranges are read, and which ends are still to be reached. Topic-partitions have numbers, in their
    order."""

    def __init__(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._places = sorted(ranges)
        self._topics = {topic: n for n, topic in enumerate(sorted({tp.topic for tp in ranges}))}
        self._keys = np.array([self._topics[tp.topic] << 32 | tp.partition for tp in self._places], np.int64)
        self._next, self._ends = np.array([ranges[tp] for tp in self._places], np.int64).T
        self._left = set(range(len(self._places)))
        self._fetched = dict[int, int]()
        self._in_topics = pa.array([tp.topic for tp in self._places], pa.string())
        self._in_partitions = pa.array([tp.partition for tp in self._places], pa.int32())

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def positions(self) -> list[_TopicPartition]:
        """Where the ranges that have not reached their ends go on."""
        return [_TopicPartition(*self._places[n], int(self._next[n])) for n in sorted(self._left)]

    def take(self, messages: Sequence[Message]) -> tuple[_Records, list[TopicPartition]]:
        """The records inside of the ranges, and the topic-partitions that are read to their ends with them."""
        offsets = offsets_of(messages) if len(self._places) > 1 else offsets_of_one(messages)
        places = self._places_of(messages)
        self._next[places] = offsets + 1  # of several of a partition the last one stays
        ends = self._ends[places]
        finished = [tp for n in set(places[offsets >= ends - 1].tolist()) if (tp := self._finish(n))]
        inside = offsets < ends
        if not inside.all():
            messages = [message for message, taken in zip(messages, inside.tolist(), strict=True) if taken]
            offsets, places = offsets[inside], places[inside]
        return _Records(messages, offsets, places), finished

    def in_columns(self, found: _Records, headers: WantedHeaders) -> pa.RecordBatch:
        places = pa.array(found.places)
        topics, partitions = self._in_topics.take(places), self._in_partitions.take(places)
        return in_columns(found.messages, topics, partitions, found.offsets, headers)

    def at_end(self, event: Message) -> tuple[TopicPartition, int] | None:
        """The topic-partition that has nothing more, and the end of its range; None: it was read already."""
        (place,) = self._places_of([event]).tolist()
        finished = self._finish(place)
        return (finished, int(self._ends[place])) if finished else None

    def note(self, statistics: str) -> None:
        """Notes how far librdkafka has fetched; librdkafka calls it while we wait for records."""
        topics = json.loads(statistics)["topics"]
        for place in self._left:
            tp = self._places[place]
            found = topics.get(tp.topic, {}).get("partitions", {}).get(str(tp.partition), {})
            self._fetched[place] = found.get("next_offset", -1)

    @property
    def fetched(self) -> int:
        """Grows while anything is fetched, be it records that are skipped."""
        return sum(self._fetched.values())

    def passed(self) -> list[TopicPartition]:
        """Topic-partitions that were fetched to their ends; called when nothing has come for a while."""
        passed = [place for place, offset in self._fetched.items() if offset >= self._ends[place]]
        return [tp for place in passed if (tp := self._finish(place))]

    def _finish(self, place: int) -> TopicPartition | None:
        if place not in self._left:
            return None
        self._left.discard(place)
        self._fetched.pop(place, None)
        return self._places[place]

    def _places_of(self, messages: Sequence[Message]) -> Numbers:
        if len(self._places) == 1:
            return np.zeros(len(messages), np.int64)
        keys = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
        if len(self._topics) > 1:
            topics = (self._topics[str(topic)] for topic in map(Message.topic, messages))
            keys |= np.fromiter(topics, np.int64, len(messages)) << 32
        return np.searchsorted(self._keys, keys)


@dataclass
class _RangeReader:
    """Reads until all ranges have reached their ends.

    Attributes:
        where: the connection, for errors.
        seconds: to wait for the next record, or for the end of a range.
        heard: why no broker is reached, as librdkafka tells its callback.
        problem: the last one that librdkafka has not solved, for all that is known.
    """

    where: str
    seconds: float
    unread: _Unread
    heard: list[KafkaError] = field(default_factory=list)
    problem: KafkaError = field(default_factory=lambda: KafkaError(KafkaError._TIMED_OUT))

    def until_end(self, consumer: Consumer) -> Iterator[_Records]:
        yield from self.until_silence(consumer, self.seconds)
        if self.unread:
            raise KafkaException(self.heard[0] if self.heard else self.problem)

    def until_silence(self, consumer: Consumer, seconds: float) -> Iterator[_Records]:
        """Ends early where nothing has come for so long, and librdkafka's statistics say of nothing that it skips."""
        deadline, fetched = time.monotonic() + seconds, self.unread.fetched
        while self.unread:
            messages, events = _waiting(consumer)
            records, finished = self.unread.take(messages)
            if not (messages or events):
                finished += self.unread.passed()
            for event in events:
                error = event.error()
                if error and error.code() != KafkaError._PARTITION_EOF:
                    self._judge(error)
                elif ended := self.unread.at_end(event):
                    finished.append(self._reached(event, *ended))
            silent = not (messages or finished) and fetched == self.unread.fetched
            if silent and time.monotonic() > deadline:
                return
            if self.unread and finished:
                consumer.incremental_unassign([_TopicPartition(*place) for place in finished])
            if records.messages:
                yield records
            if not silent:  # without the time in which others have worked on the records
                deadline, fetched = time.monotonic() + seconds, self.unread.fetched
                self.heard.clear()

    def _reached(self, event: Message, place: TopicPartition, end: int) -> TopicPartition:
        if (event.offset() or 0) < end:
            raise self._gone(f"{place} ends at {event.offset()}, not at {end}")
        return place

    def _judge(self, error: KafkaError) -> None:
        """Keeps the error to raise if nothing comes any more. librdkafka itself solves most problems of connections."""
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # librdkafka looks for the group's coordinator, whom nobody needs here
        if refuses(error):
            raise KafkaException(error)
        if error.code() in _GONE:
            raise self._gone(error.str())
        self.problem = error

    def _gone(self, what: str) -> TransientError:
        return TransientError(
            f"Kafka no longer has offsets that were there when the batch was planned ({what})",
            where=self.where,
            remedy="run again: the plan names the offsets that are missing",
        )


def _waiting(consumer: Consumer) -> tuple[list[Message], list[Message]]:
    """Waits for a first message; the records and the other events of librdkafka that there are then."""
    first = consumer.poll(_WAIT_SECONDS)
    if first is None:
        return [], []
    found = [first, *consumer.consume(_AT_ONCE, 0)]
    if not any(map(Message.error, found)):
        return found, []
    records, events = list[Message](), list[Message]()
    for message in found:
        (events if message.error() else records).append(message)
    return records, events


def _in_batches(found: Iterator[_Records], unread: _Unread, headers: WantedHeaders) -> Iterator[pa.RecordBatch]:
    """In batches of about the same size."""
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for some in found:
        records = unread.in_columns(some, headers)
        waiting.append(records)
        rows, size = rows + records.num_rows, size + records["key"].nbytes + records["value"].nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)

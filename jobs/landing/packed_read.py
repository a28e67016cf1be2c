"""Ranges of few records, many of them in one Spark task: by one consumer, and past the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from jobs.offsets import Ranges
from jobs.spark_tasks import Batches, numbers
from jobs.spec.transform import HEADERS
from resources.kafka import KafkaCluster
from resources.range_reading import read_ranges

# Rows and bytes of an Arrow batch.
_ROWS, _BYTES = 20_000, 16 << 20

RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
"""Records as Spark's Kafka source gives them."""


@dataclass(frozen=True)
class PackedRead:
    """The function of a task: numbers of shares in; what another function makes of their records out.

    Attributes:
        shares: the ranges of each.
        headers: the records have them.
        then: what is done with a share's records; None: they are what comes out.
    """

    kafka: KafkaCluster
    shares: Sequence[Ranges]
    headers: bool
    then: Callable[[Batches], Batches] | None = None

    @property
    def schema(self) -> pa.Schema:
        return RECORDS.append(pa.field("headers", HEADERS)) if self.headers else RECORDS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            records = self._records(self.shares[number])
            yield from self.then(records) if self.then else records

    def _records(self, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        """All records of a share, in batches of bounded size."""
        waiting, size = list[Message](), 0
        for some in read_ranges(self.kafka, {tp: (r.start, r.end) for tp, r in ranges.items()}):
            for message in some:
                waiting.append(message)
                size += len(message)
                if len(waiting) >= _ROWS or size >= _BYTES:
                    yield self._batch(waiting)
                    waiting, size = [], 0
        if waiting:
            yield self._batch(waiting)

    def _batch(self, found: Sequence[Message]) -> pa.RecordBatch:
        columns: dict[str, object] = {
            "key": [m.key() for m in found],
            "value": [m.value() for m in found],
            "topic": [m.topic() for m in found],
            "partition": [m.partition() for m in found],
            "offset": [m.offset() for m in found],
            "timestamp": [m.timestamp()[1] * 1000 for m in found],
        }
        if self.headers:
            columns["headers"] = [_headers(m) for m in found]
        return pa.RecordBatch.from_pydict(columns, schema=self.schema)


def _headers(message: Message) -> list[dict[str, object]] | None:
    found: Any = message.headers()  # declared as also an object, which producers may give
    return [{"key": key, "value": value} for key, value in found] if found else None

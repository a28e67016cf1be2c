"""Reads a batch in Spark's tasks: each reads its share of the offset ranges by one Kafka consumer, without the JVM."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from jobs.offsets import Ranges, TopicPartition
from jobs.spark.spark_tasks import Batches, numbers
from resources.kafka import KafkaCluster
from resources.kafka_records import WantedHeaders
from resources.range_reading import read_ranges


def packed(ranges: Ranges) -> bytes:
    """The offset ranges of one task. Every task gets those of all tasks, and unpacks its own alone."""
    plain = [(tp.topic, tp.partition, taken.start, taken.end) for tp, taken in ranges.items()]
    return zlib.compress(pickle.dumps(plain))


def unpacked(share: bytes) -> dict[TopicPartition, tuple[int, int]]:
    """``[start, end)`` by topic-partition."""
    plain = pickle.loads(zlib.decompress(share))
    return {TopicPartition(topic, partition): (start, end) for topic, partition, start, end in plain}


@dataclass(frozen=True)
class ReadTask:
    """The function of a task: numbers of shares in; the result of another function on their records out.

    Attributes:
        shares: of each task (`packed`).
        headers: which of the records' headers are read.
        then: the function that gets a share's records; None: return the records themselves.
    """

    kafka: KafkaCluster
    shares: Sequence[bytes]
    headers: WantedHeaders
    then: Callable[[Batches], Batches] | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            records = read_ranges(self.kafka, unpacked(self.shares[number]), self.headers)
            yield from self.then(records) if self.then else records

"""Reads a batch in Spark's tasks: each reads its share of the offset ranges by one Kafka consumer, without the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from jobs.offsets import Ranges, TopicPartition, ends, from_arrays, starts, to_arrays
from jobs.spark_tasks import Batches, numbers
from resources.kafka import KafkaCluster
from resources.kafka_records import WantedHeaders
from resources.range_reading import read_ranges


@dataclass(frozen=True)
class Share:
    """Offset ranges of one task, as arrays: every task gets the shares of all, and thousands of ranges as objects take
    longer to unpickle than a small batch's records to read."""

    starts: Mapping[str, list[int | None]]
    ends: Mapping[str, list[int | None]]

    @classmethod
    def of(cls, ranges: Ranges) -> Share:
        return cls(to_arrays(starts(ranges)), to_arrays(ends(ranges)))

    def ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """``[start, end)`` by topic-partition."""
        last = from_arrays(self.ends)
        return {tp: (start, last[tp]) for tp, start in from_arrays(self.starts).items()}


@dataclass(frozen=True)
class ReadTask:
    """The function of a task: numbers of shares in; the result of another function on their records out.

    Attributes:
        headers: which of the records' headers are read.
        then: the function that gets a share's records; None: return the records themselves.
    """

    kafka: KafkaCluster
    shares: Sequence[Share]
    headers: WantedHeaders
    then: Callable[[Batches], Batches] | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            records = read_ranges(self.kafka, self.shares[number].ranges(), self.headers)
            yield from self.then(records) if self.then else records

"""Reads a batch in Spark's tasks: each reads its share of the offset ranges by one Kafka consumer, without the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from jobs.offsets import Ranges
from jobs.spark_tasks import Batches, numbers
from resources.kafka import KafkaCluster
from resources.kafka_records import WantedHeaders
from resources.range_reading import read_ranges


@dataclass(frozen=True)
class ReadTask:
    """The function of a task: numbers of shares in; the result of another function on their records out.

    Attributes:
        shares: the ranges of each share.
        headers: which of the records' headers are read.
        then: the function that gets a share's records; None: return the records themselves.
    """

    kafka: KafkaCluster
    shares: Sequence[Ranges]
    headers: WantedHeaders
    then: Callable[[Batches], Batches] | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            wanted = {tp: (offsets.start, offsets.end) for tp, offsets in self.shares[number].items()}
            records = read_ranges(self.kafka, wanted, self.headers)
            yield from self.then(records) if self.then else records

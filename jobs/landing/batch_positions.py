"""Positions of records within their batch: the `i` of landed rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jobs.landing.places import POSITION
from jobs.offsets import Ranges, TopicPartition, from_arrays, to_arrays


@dataclass(frozen=True)
class BatchPositions:
    """Positions in the ranges of a batch, ascending by topic, partition and offset; travels to Spark's workers.

    A position is no rank among the records, so that it follows from the coordinates alone, whatever compaction has
    removed between two attempts, and needs no second pass.

    Attributes:
        shifts: by topic-partition, what to add to an offset.
    """

    shifts: Mapping[TopicPartition, int]

    @classmethod
    def of(cls, ranges: Ranges) -> BatchPositions:
        shifts, position = dict[TopicPartition, int](), 0
        for tp in sorted(ranges):
            shifts[tp] = position - ranges[tp].start
            position += len(ranges[tp])
        return cls(shifts)

    def __reduce__(self) -> tuple[Callable[..., BatchPositions], tuple[dict[str, list[int | None]]]]:
        """Pickles arrays: thousands of topic-partitions as objects take longer than a small batch's records."""
        return _unpacked, (to_arrays(self.shifts),)

    def spread(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records, each once, with their positions (`POSITION`)."""
        topics = batch.column("topic").cast(pa.string()).dictionary_encode()
        numbers, partitions = topics.indices.to_numpy(), batch.column("partition").to_numpy()
        # One number for each topic-partition, so that thousands of them are looked up at once.
        present, rows = np.unique(numbers.astype(np.int64) << 32 | partitions, return_inverse=True)
        names = topics.dictionary.to_pylist()
        found = [TopicPartition(names[number >> 32], number & 0xFFFFFFFF) for number in present.tolist()]
        shifts = np.array([self.shifts[tp] for tp in found], np.int64)
        return batch.append_column(POSITION, pa.array(batch.column("offset").to_numpy() + shifts[rows]))


def _unpacked(shifts: Mapping[str, list[int | None]]) -> BatchPositions:
    return BatchPositions(from_arrays(shifts))

"""Places of records that are read again: (batch, i), their position in the order of all changes. Pure.

A record keeps the place that it got when it was landed, or several if offsets were reset backwards. A record that was
never landed, or whose batch retention has removed, gets a place right before the batch whose ranges begin after it,
with a negative `i`. So the order of a topic-partition's changes is kept, and each reading has the same place.

    batch 4 has t-0 [100, 160)     offset 120 is (4, 20)      offset 70, not landed, is (4, -30)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.batch import LandedBatch
from jobs.offsets import OffsetRange, Ranges, TopicPartition, read_ahead

# Names of the columns that `Places.spread` adds.
BATCH, POSITION = "__batch", "__i"


@dataclass(frozen=True)
class Stretch:
    """Records ``[start, end)`` of a topic-partition, whose place is ``(batch, offset + shift)``."""

    start: int
    end: int
    batch: int
    shift: int

    def within(self, wanted: OffsetRange) -> Stretch | None:
        start, end = max(self.start, wanted.start), min(self.end, wanted.end)
        return Stretch(start, end, self.batch, self.shift) if start < end else None


@dataclass(frozen=True)
class Places:
    """The places of the records of some ranges; travels to Spark's workers.

    Attributes:
        stretches: by topic-partition; they overlap if records were landed several times.
    """

    stretches: Mapping[TopicPartition, Sequence[Stretch]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of places, an upper bound of the readings."""
        return sum(s.end - s.start for found in self.stretches.values() for s in found)

    def spread(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records with their places (`BATCH`, `POSITION`), once for each place."""
        rows, batches, positions = [], [], []
        offsets, partitions = (batch.column(name).to_numpy() for name in ("offset", "partition"))
        topics = batch.column("topic").cast(pa.string())
        present = pa.Table.from_batches([batch.select(["topic", "partition"])]).group_by(["topic", "partition"])
        for row in present.aggregate([]).to_pylist():
            tp = TopicPartition(row["topic"], row["partition"])
            of_topic = pc.equal(topics, tp.topic).to_numpy(zero_copy_only=False)
            here = np.flatnonzero(of_topic & (partitions == tp.partition))
            for s in self.stretches.get(tp, ()):
                inside = here[(offsets[here] >= s.start) & (offsets[here] < s.end)]
                rows.append(inside)
                batches.append(np.full(len(inside), s.batch, dtype=np.int64))
                positions.append(offsets[inside].astype(np.int64) + s.shift)
        taken = batch.take(pa.array(_joined(rows)))
        return taken.append_column(BATCH, pa.array(_joined(batches))).append_column(
            POSITION, pa.array(_joined(positions))
        )


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def places(landed: Iterable[LandedBatch], topic_ids: Mapping[str, str], wanted: Ranges) -> Places:
    """The places of all records of these ranges.

    Args:
        landed: all known batches, ascending.
        topic_ids: of the topics that are read; batches of another topic of that name are ignored.
    """
    found: dict[TopicPartition, list[Stretch]] = {}
    for tp, stretch in _stretches(landed, topic_ids):
        if tp in wanted and (part := stretch.within(wanted[tp])):
            found.setdefault(tp, []).append(part)
    return Places(found)


def landed_from(landed: Iterable[LandedBatch], topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """For each topic-partition the offset from which on all records up to the newest batch are in known batches."""
    first: dict[TopicPartition, int] = {}
    for tp, s in _stretches(landed, topic_ids):
        # A negative `i`: these records are not landed.
        first[tp] = s.end if s.shift + s.start < 0 else min(s.start, first.get(tp, s.start))
    return first


def _stretches(landed: Iterable[LandedBatch], topic_ids: Mapping[str, str]) -> Iterator[tuple[TopicPartition, Stretch]]:
    """The records of each topic-partition in the batches, and those before each batch that are not landed."""
    reached: dict[TopicPartition, int] = {}
    batches = [landed_batch.batch for landed_batch in landed if landed_batch.batch.revises is None]
    for batch, all_ranges in zip(batches, read_ahead([batch.ranges for batch in batches]), strict=True):
        ranges = dict(sorted(all_ranges.items()))
        known = {topic for topic, found in batch.topic_ids.items() if found == topic_ids.get(topic)}
        gaps = {
            tp: (reached.get(tp, 0), r.start)
            for tp, r in ranges.items()
            if tp.topic in known and reached.get(tp, 0) < r.start
        }
        before = -sum(end - start for start, end in gaps.values())
        for tp, (start, end) in gaps.items():
            yield tp, Stretch(start, end, batch.number, before - start)
            before += end - start
        position = 0
        for tp, r in ranges.items():
            if tp.topic in known:
                reached[tp] = max(reached.get(tp, 0), r.end)
                if len(r):
                    yield tp, Stretch(r.start, r.end, batch.number, position - r.start)
            position += len(r)

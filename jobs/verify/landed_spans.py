"""The offsets that landed batches have; rows of other offsets may be right without a landed change. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.batch import LandedBatch
from jobs.lineage import RecreatedTopics, incarnation
from jobs.offsets import OffsetRange, TopicPartition

# A topic-partition, and which of the topics of that name it is of (`jobs.lineage.incarnation`).
Place = tuple[TopicPartition, int]


def landed_spans(batches: Sequence[LandedBatch], recreated: RecreatedTopics) -> dict[Place, list[OffsetRange]]:
    """The offset ranges of these batches, ascending; overlapping ones (after resets) and adjacent ones are joined."""
    found = dict[Place, list[OffsetRange]]()
    for place, span in sorted(_ranges(batches, recreated), key=lambda pair: pair[1].start):
        if not len(span):
            continue
        spans = found.setdefault(place, [])
        if spans and span.start <= spans[-1].end:
            spans[-1] = OffsetRange(spans[-1].start, max(spans[-1].end, span.end))
        else:
            spans.append(span)
    return found


def from_the_first(batches: Sequence[LandedBatch], recreated: RecreatedTopics) -> bool:
    """Whether every record that Kafka ever had, up to the last batch, was landed."""
    ends = dict[Place, int]()
    for place, span in _ranges(batches, recreated):
        ends[place] = max(span.end, ends.get(place, 0))
    spans = landed_spans(batches, recreated)
    return all(spans.get(place, []) == [OffsetRange(0, end)] for place, end in ends.items() if end)


def _ranges(batches: Sequence[LandedBatch], recreated: RecreatedTopics) -> Iterator[tuple[Place, OffsetRange]]:
    for batch in batches:
        for tp, span in batch.batch.ranges.items():
            yield (tp, incarnation(tp.topic, batch.number, recreated)), span

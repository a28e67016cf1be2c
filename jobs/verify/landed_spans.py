"""Which offsets landed batches hold: of others a row may be right without any landed change. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.batch import LandedBatch
from jobs.offsets import OffsetRange, TopicPartition


def landed_spans(batches: Sequence[LandedBatch]) -> dict[TopicPartition, list[OffsetRange]]:
    """Per topic-partition the offsets of these batches, ascending; what is next to each other is one."""
    found = dict[TopicPartition, list[OffsetRange]]()
    for batch in batches:
        for tp, span in batch.batch.ranges.items():
            if not len(span):
                continue
            spans = found.setdefault(tp, [])
            if spans and spans[-1].end == span.start:
                spans[-1] = OffsetRange(spans[-1].start, span.end)
            else:
                spans.append(span)
    return found


def from_the_first(batches: Sequence[LandedBatch]) -> bool:
    """Whether every record that Kafka ever had, up to the last batch, was landed."""
    ends = {tp: span.end for batch in batches for tp, span in batch.batch.ranges.items()}
    spans = landed_spans(batches)
    return all(spans.get(tp, [OffsetRange(0, 0)]) == [OffsetRange(0, end)] for tp, end in ends.items() if end)

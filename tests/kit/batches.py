"""Batches and states for tests of pure decisions: one topic `t` with two partitions, ten offsets a batch."""

from __future__ import annotations

from dataclasses import replace

from jobs.batch import Batch, CommittedState, Counts, LandedBatch
from jobs.offsets import OffsetRange, Ranges, TopicPartition
from jobs.watermark import Watermark

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_IDS = {"t": "id-of-t"}


def batch(
    number: int,
    ranges: Ranges | None = None,
    previous: str | None = None,
    commit_id: str | None = None,
    **parts: object,
) -> Batch:
    """Batch n reads [10(n-1), 10n) of both partitions, is called `c<n>` and follows `c<n-1>`."""
    read = OffsetRange(10 * (number - 1), 10 * number)
    made = Batch(
        pipeline="p",
        number=number,
        commit_id=commit_id or f"c{number}",
        previous_commit_id=previous or (f"c{number - 1}" if number > 1 else None),
        ranges=ranges if ranges is not None else {P0: read, P1: read},
        topic_ids=TOPIC_IDS,
        planned_at=1000 * number,
        meaning_hash="hash",
    )
    return replace(made, **parts)  # type: ignore[arg-type]


def landed(number: int, watermark: Watermark | None = None, **parts: object) -> LandedBatch:
    made = batch(number, **parts)  # type: ignore[arg-type]
    times = watermark or Watermark(dict.fromkeys(made.ranges, 1000 * number), 1000 * number)
    return LandedBatch(made, Counts(20, 18, 1, 1, 0), times, snapshot_id=number)


def landed_without_rows(made: Batch) -> LandedBatch:
    return LandedBatch(made, Counts(), Watermark(), snapshot_id=made.number)


def committed(number: int, **parts: object) -> CommittedState:
    return CommittedState.after(landed(number, **parts))  # type: ignore[arg-type]

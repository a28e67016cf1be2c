"""Describes what a replay will read, before it reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from jobs.batch import LandedBatch
from jobs.offsets import Ranges, total

_MOST = 5


def of_batches(batches: Sequence[LandedBatch]) -> str:
    """Text about landed batches: their numbers, when they were landed, and that records have other times."""
    if not batches:
        return "nothing was landed then; records of that time, whenever they were landed: --kafka-from"
    first, last = batches[0], batches[-1]
    which = f"batch {first.number}" if first is last else f"batches {first.number} to {last.number}"
    records = sum(batch.counts.read for batch in batches)
    return (
        f"merged again: {which}, landed {_instant(first)} to {_instant(last)} UTC, {records:,} records of whatever "
        "time (by the records' own time: --kafka-from)"
    )


def of_kafka(ranges: Ranges) -> str:
    """Text about offsets that are read from Kafka again."""
    if not total(ranges):
        return "nothing is to be read from Kafka: no landed record is of that time, or at those offsets"
    shown = [f"{tp} {wanted.start} to {wanted.end}" for tp, wanted in sorted(ranges.items())]
    more = f" and {len(shown) - _MOST} partitions more" if len(shown) > _MOST else ""
    return f"read from Kafka again: {total(ranges):,} offsets ({', '.join(shown[:_MOST])}{more})"


def landed_between(batches: Sequence[LandedBatch], start: datetime, end: datetime) -> list[LandedBatch]:
    """The batches that were landed in ``[start, end)``."""
    first, last = start.timestamp() * 1000, end.timestamp() * 1000
    return [batch for batch in batches if first <= batch.batch.planned_at < last]


def _instant(batch: LandedBatch) -> str:
    return f"{datetime.fromtimestamp(batch.batch.planned_at / 1000, UTC):%Y-%m-%d %H:%M:%S}"

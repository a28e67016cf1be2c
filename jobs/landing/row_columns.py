"""Columns of landed rows from the results of decoding, and counts of records read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from jobs.changes.columns import ERROR, SOME_HEADERS, UNCHANGED
from jobs.decode.base import DecodeError
from jobs.landing.task_report import RecordsRead
from jobs.offsets import OffsetRange, TopicPartition
from jobs.watermark import latest_credible
from resources.kafka_records import INSTANT


def records_read(batch: pa.RecordBatch, landed_at: int) -> dict[TopicPartition, RecordsRead]:
    """The batch's records by topic-partition: their number, offsets and newest credible time.

    Args:
        landed_at: the time of landing, in milliseconds.
    """
    times = pc.divide(batch.column("timestamp").cast(INSTANT).cast(pa.int64()), 1000)
    credible = pc.if_else(pc.less_equal(times, latest_credible(landed_at)), times, None)
    table = pa.Table.from_batches([batch.select(["topic", "partition", "offset"])]).append_column("time", credible)
    wanted = [([], "count_all"), ("offset", "min"), ("offset", "max"), ("time", "max")]
    groups = table.group_by(["topic", "partition"], use_threads=False).aggregate(wanted)
    names = ("topic", "partition", "count_all", "offset_min", "offset_max", "time_max")
    columns = [groups[name].to_pylist() for name in names]
    return {
        TopicPartition(topic, partition): RecordsRead(records, time, OffsetRange(first, last + 1))
        for topic, partition, records, first, last, time in zip(*columns, strict=True)
    }


def error_column(batch: pa.RecordBatch, errors: Mapping[int, DecodeError]) -> pa.Array:
    """For each bad record its error and its bytes; null for the others."""
    if not errors:
        return pa.nulls(batch.num_rows, ERROR)
    keys, values = batch.column("key"), batch.column("value")
    rows: list[dict[str, object] | None] = [None] * batch.num_rows
    for row, error in errors.items():
        raw = {
            "key": keys[row].as_py(),
            "value": values[row].as_py(),
            "headers": _headers(batch, row),
        }
        rows[row] = {**vars(error), **raw}
    return pa.array(rows, ERROR)


def _headers(batch: pa.RecordBatch, row: int) -> list[dict[str, object]] | None:
    """A record's headers, with a mark if they are not all; None if no headers were read."""
    if "headers" in batch.schema.names:
        return batch.column("headers")[row].as_py() or []
    found = batch.column("some_headers")[row].as_py() if "some_headers" in batch.schema.names else None
    return [*found, {"key": SOME_HEADERS, "value": None}] if found else None


def unchanged_column(unchanged: Mapping[int, tuple[str, ...]], rows: int) -> pa.Array:
    return (
        pa.array([unchanged.get(row) for row in range(rows)], UNCHANGED.type)
        if unchanged
        else pa.nulls(rows, UNCHANGED.type)
    )


def only_good(values: pa.Array, good: pa.Array | None) -> pa.Array:
    """The values of good records; null elsewhere."""
    return values if good is None else pc.if_else(good, values, pa.nulls(len(values), values.type))

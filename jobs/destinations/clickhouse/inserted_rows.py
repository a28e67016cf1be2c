"""The rows that a task inserts, chunk by chunk: landed rows, or for a replay the newest row of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.changes.files import LandedSlice
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.reduction import Reduction
from jobs.destinations.clickhouse.insert_task import (
    CHUNK,
    ORDER,
    POSITION,
    InsertCounts,
    InsertTask,
    Rows,
    run_tasks,
)
from jobs.destinations.clickhouse.statements import SENT_VERSION
from jobs.destinations.clickhouse.steps import Chunk
from jobs.destinations.refusal import BATCH, LANDED_AT, OFFSET, PARTITION, SENT_DELETED, TOPIC
from jobs.offsets import OffsetRange
from jobs.schema.types import as_integers
from jobs.spark.spark_tasks import numbered, numbers
from jobs.spec.columns import RowColumn
from resources.spark import parallelism
from resources.spark_errors import spark_errors

_PLACES = {**LANDED_AT, SENT_VERSION: LANDED_AT[BATCH], POSITION: ("i",)}
# Positions are 32 bits of a version; no record has this one.
_AFTER_ALL = 2**32 - 1


@dataclass(frozen=True)
class RowShape:
    """How landed rows become rows of the insert.

    Attributes:
        order_by: the column that orders the changes of one key.
        deletes: rows of deletes are inserted, marked as such.
        truncated_below: changes with a smaller `order_by` value are left out; None: none are.
    """

    columns: tuple[RowColumn, ...]
    order_by: RowColumn | None
    deletes: bool
    truncated_below: int | None = None

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """The paths of the landed columns that are needed."""
        ordered_by = [self.order_by.path] if self.order_by else []
        return [*(c.path for c in self.columns), *ordered_by, *_PLACES.values(), ("op",)]

    def of(self, landed: LandedSlice) -> pa.Table:
        rows = {c.name: landed.plain(c.path) for c in self.columns}
        rows |= {name: landed.plain(path) for name, path in _PLACES.items()}
        if self.order_by:
            rows[ORDER] = _order_of(landed.at(self.order_by.path))
        if self.deletes:
            rows[SENT_DELETED] = pc.equal(landed.at(("op",)), "delete").cast(pa.int32())
        made = pa.table(rows)
        return made if self.truncated_below is None else made.filter(pc.field(ORDER) >= self.truncated_below)


@dataclass(frozen=True)
class LandedSlices:
    """The rows of landed batches, read from their files by the same tasks that insert them, without shuffling or
    sorting.

    Several changes of one key become several rows: the table's version column decides between them, as between batches.

    Attributes:
        newer: newer readings; records that have one are not inserted.
    """

    spark: SparkSession
    files: PlannedFiles
    shape: RowShape
    newer: tuple[PlannedFiles, ...] = ()

    def insert(self, task: InsertTask) -> InsertCounts:
        """Runs the inserts in Spark tasks, in parallel over chunks.

        Raises:
            Interrupted, Unavailable, TerminalError: the worst error of the tasks.
        """
        count = len(task.chunks)
        rows = numbered(self.spark, count, min(count, parallelism(self.spark)) if count > 1 else 1)
        return run_tasks(rows, self._run_in_spark(task), task.refusal.where)

    def _run_in_spark(self, task: InsertTask) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        # Local variables, so that the task's pickle does not contain the session.
        files, shape, newer = self.files, self.shape, self.newer

        def rows_of(chunk: Chunk) -> Rows:
            spans = {tp: OffsetRange(span.first, span.last + 1) for tp, span in chunk.spans.items()}
            wanted = (chunk.first, chunk.last, spans if chunk.is_part else None)
            return lambda: shape.of(files.read(*wanted).without([found.read(*wanted) for found in newer]))

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from task.run((number, rows_of(task.chunks[number])) for number in numbers(batches))

        return run


@dataclass(frozen=True)
class NewestRows:
    """The newest change of each key that a replay touches: found by Spark, sorted for their chunks.

    Attributes:
        order_by: the column that orders the changes of one key; None: batch and position do.
        until: the batch of whose version the rows get the highest, since records that were read again are newer than
            all that the table has of their keys. None: the version of their own batch and position.
    """

    spark: SparkSession
    wanted: Reduction
    order_by: RowColumn | None
    until: int | None = None

    def insert(self, task: InsertTask) -> InsertCounts:
        """Runs the inserts in Spark tasks, in parallel over chunks.

        Raises:
            Interrupted, Unavailable, TerminalError: the worst error of the tasks.
        """
        with spark_errors(task.refusal.where):
            rows = self._in_chunks(len(task.chunks))
        return run_tasks(rows, lambda batches: task.run(_by_chunk(batches)), task.refusal.where)

    def _in_chunks(self, count: int) -> DataFrame:
        """The rows with the number of their chunk, repartitioned and sorted by it."""
        keys = [F.col(f"`{name}`") for name in self.wanted.keys]
        rows = self._rows().withColumn(CHUNK, F.pmod(F.xxhash64(*keys), F.lit(count)).cast("int"))
        tasks = min(count, parallelism(self.spark)) if count > 1 else 1
        placed = rows.coalesce(1) if tasks == 1 else rows.repartition(tasks, CHUNK)
        return placed.sortWithinPartitions(CHUNK, BATCH, POSITION)

    def _rows(self) -> DataFrame:
        wanted = self.wanted
        found = wanted.rows(self.spark)
        kafka = F.col("__kafka")
        leading = {
            TOPIC: kafka["topic"],
            PARTITION: kafka["partition"],
            OFFSET: kafka["offset"],
            BATCH: F.col("__batch"),
            SENT_VERSION: F.col("__batch") if self.until is None else F.lit(self.until).cast("long"),
            POSITION: F.col("__i") if self.until is None else F.lit(_AFTER_ALL).cast("long"),
        }
        if self.order_by:
            leading[ORDER] = _order_column(F.col("__order"), self.order_by.type)
        if wanted.mode == "upsert_delete":
            leading[SENT_DELETED] = (F.col("__op") == "delete").cast("int")
        return found.select(*(F.col(f"`{c.name}`") for c in wanted.columns), *(v.alias(k) for k, v in leading.items()))


def _order_of(value: pa.Array) -> pa.Array:
    """The `order_by` value as an integer of the same order (microseconds, days); null is first."""
    return pc.fill_null(as_integers(value).cast(pa.int64()), -(2**63))


def _order_column(value: Column, kind: pa.DataType) -> Column:
    """The `order_by` value as an integer of the same order; null is first."""
    if pa.types.is_timestamp(kind):
        value = F.unix_micros(value.cast("timestamp"))
    elif pa.types.is_date(kind):
        value = F.unix_date(value)
    return F.coalesce(value.cast("long"), F.lit(-(2**63)))


def _by_chunk(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Rows]]:
    """The rows of each chunk, from batches that are sorted by chunk."""
    number, parts = -1, list[pa.RecordBatch]()
    for batch in batches:
        chunks = batch.column(CHUNK).to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(chunks)]
        for first, end in pairwise(starts):
            if first == end:
                continue
            if parts and chunks[first] != number:
                yield number, partial(pa.Table.from_batches, parts)
                parts = []
            number = int(chunks[first])
            parts.append(batch.slice(first, end - first))
    if parts:
        yield number, partial(pa.Table.from_batches, parts)

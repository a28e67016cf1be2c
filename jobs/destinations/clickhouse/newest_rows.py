"""The newest rows of keys that a replay touches: found by Spark, sorted for their chunks, inserted by its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

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
from jobs.destinations.refusal import BATCH, OFFSET, PARTITION, SENT_DELETED, TOPIC
from jobs.spec.columns import RowColumn
from resources.spark import parallelism, spark_errors

# Positions are 32 bits of a version; no record has this one.
_AFTER_ALL = 2**32 - 1


@dataclass(frozen=True)
class NewestRows:
    """The newest change of each key that the reduction returns.

    Attributes:
        order_by: the column that orders the changes of one key; None: batch and position do.
        until: the batch of whose version the rows get the highest, since records that were read again are newer than
            all that the table has of their keys. None: the version of their own batch and position.
    """

    spark: SparkSession
    wanted: Reduction
    order_by: RowColumn | None
    until: int | None = None

    def insert(self, task: InsertTask, where: str) -> InsertCounts:
        """Runs the inserts in Spark tasks, in parallel over chunks.

        Raises:
            Interrupted, Unavailable, TerminalError: the worst error of the tasks.
        """
        with spark_errors(where):
            rows = self._in_chunks(len(task.chunks))
        return run_tasks(rows, lambda batches: task.run(_by_chunk(batches)), where)

    def _in_chunks(self, count: int) -> DataFrame:
        """The rows with the number of their chunk, repartitioned and sorted by it."""
        keys = [F.col(f"`{name}`") for name in self.wanted.keys]
        numbered = self._rows().withColumn(CHUNK, F.pmod(F.xxhash64(*keys), F.lit(count)).cast("int"))
        tasks = min(count, parallelism(self.spark)) if count > 1 else 1
        placed = numbered.coalesce(1) if tasks == 1 else numbered.repartition(tasks, CHUNK)
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
            leading[ORDER] = _as_integer(F.col("__order"), self.order_by.type)
        if wanted.mode == "upsert_delete":
            leading[SENT_DELETED] = (F.col("__op") == "delete").cast("int")
        return found.select(*(F.col(f"`{c.name}`") for c in wanted.columns), *(v.alias(k) for k, v in leading.items()))


def _as_integer(value: Column, kind: pa.DataType) -> Column:
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

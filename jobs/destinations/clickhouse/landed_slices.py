"""Rows of chunks, read from the landed files by the same tasks that insert them, without shuffling or sorting.

Several changes of one key become several rows: the table's version column decides between them, as between batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from jobs.changes.files import LandedSlice
from jobs.changes.planned_files import PlannedFiles
from jobs.destinations.clickhouse.insert_task import (
    ORDER,
    POSITION,
    InsertCounts,
    InsertTask,
    Rows,
    run_tasks,
)
from jobs.destinations.clickhouse.statements import SENT_VERSION
from jobs.destinations.clickhouse.steps import Chunk
from jobs.destinations.refusal import BATCH, LANDED_AT, SENT_DELETED
from jobs.offsets import OffsetRange
from jobs.schema.types import as_integers
from jobs.spark.spark_tasks import numbered, numbers
from jobs.spec.columns import RowColumn
from resources.spark import parallelism

_PLACES = {**LANDED_AT, SENT_VERSION: LANDED_AT[BATCH], POSITION: ("i",)}


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
            rows[ORDER] = _as_integer(landed.at(self.order_by.path))
        if self.deletes:
            rows[SENT_DELETED] = pc.equal(landed.at(("op",)), "delete").cast(pa.int32())
        made = pa.table(rows)
        return made if self.truncated_below is None else made.filter(pc.field(ORDER) >= self.truncated_below)


@dataclass(frozen=True)
class LandedSlices:
    """The rows of landed batches, chunk by chunk.

    Attributes:
        newer: newer readings; records that have one are not inserted.
    """

    spark: SparkSession
    files: PlannedFiles
    shape: RowShape
    newer: tuple[PlannedFiles, ...] = ()

    def insert(self, task: InsertTask, where: str) -> InsertCounts:
        """Runs the inserts in Spark tasks, in parallel over chunks.

        Raises:
            Interrupted, Unavailable, TerminalError: the worst error of the tasks.
        """
        count = len(task.chunks)
        rows = numbered(self.spark, count, min(count, parallelism(self.spark)) if count > 1 else 1)
        return run_tasks(rows, self._run_in_spark(task), where)

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


def _as_integer(value: pa.Array) -> pa.Array:
    """The `order_by` value as an integer of the same order (microseconds, days); null is first."""
    return pc.fill_null(as_integers(value).cast(pa.int64()), -(2**63))

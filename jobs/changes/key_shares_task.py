"""A merge in several Spark tasks: each writes the new rows of its share of the keys, then the deletes are written.

Each task reads the changes of its share itself. If they are in many small files, separate readers read each file once
and send the rows to the tasks, as the bytes of Arrow tables. A data file has one delete file, and several shares may
delete rows from it: so one task gets the positions that all shares delete from a data file. No rows travel there.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from jobs.changes.few_changes_task import FewChangesTask
from jobs.iceberg.row_delta_task import Gone, RowDeltaReport, RowDeltaTask
from jobs.spark.spark_tasks import Batches, in_arrow, numbered, numbers, report_row, task_numbers, task_reports
from resources.errors import InvariantBroken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Less than half of the bytes pass through Spark, for a tenth of a second per million rows.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
# What readers find for a share; `share` is a number that Spark sends to the share's task.
_PART = pa.schema([("share", pa.int64()), ("rows", pa.binary())])
# What a share returns: its report (no file), or the positions to delete from a data file, as 64-bit integers.
_SHARE = pa.schema([("file", pa.string()), ("content", pa.binary())])


def write_in_shares(spark: SparkSession, task: FewChangesTask) -> RowDeltaReport:
    """Has Spark's tasks write the changes of all shares."""
    from resources.spark import parallelism

    shares, readers = task.changes.shares, task.changes.readers
    given = numbered(spark, shares)
    if readers:
        readers = min(readers, parallelism(spark))
        read = PartsTask(task, readers, tuple(task_numbers(shares)))
        parts = in_arrow(numbered(spark, readers), read, _PART)
        given = parts.repartition(shares, "share")
    written = in_arrow(given, NewRowsTask(task), _SHARE)
    return sum(task_reports(written.repartition("file"), DeletesTask(task.write)), RowDeltaReport())


@dataclass(frozen=True)
class PartsTask:
    """The function of a task: numbers of readers in, what they find for each share out.

    Attributes:
        readers: how many readers there are.
        shares: for each share the number by which Spark sends rows to its task.
    """

    task: FewChangesTask
    readers: int
    shares: tuple[int, ...]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for reader in numbers(batches):
            for share, rows in self.task.changes.parted(reader, self.readers):
                yield pa.RecordBatch.from_pydict({"share": [self.shares[share]], "rows": [_sent(rows)]}, _PART)


@dataclass(frozen=True)
class NewRowsTask:
    """The function of a task: the number of its share in, or what readers have found for it.

    A task that Spark runs again returns the same positions and a report of other files. Only one report counts, since
    it is one row.
    """

    task: FewChangesTask

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        changes = self._changes(batches)
        if changes is None:
            return
        if (rows := self.task.placed(changes)) is None:
            what = "only Spark SQL can find the rows of this merge, which was split by key; nothing was published"
            raise InvariantBroken(what, where=self.task.write.files.where)
        report, gone = self.task.write.write_rows(rows.to_batches())
        deleted = [np.concatenate(positions).tobytes() for positions in gone.values()]
        yield pa.RecordBatch.from_pydict({"file": [None, *gone], "content": [pickle.dumps(report), *deleted]}, _SHARE)

    def _changes(self, batches: Batches) -> pa.Table | None:
        """The changes of this share; None: no reader has found any."""
        if not self.task.changes.readers:
            (share,) = numbers(batches)
            return self.task.changes.read_share(share)
        parts = [_received(rows) for batch in batches for rows in batch.column("rows")]
        return self.task.changes.last_of(parts) if parts else None


@dataclass(frozen=True)
class DeletesTask:
    """The function of a task: what the shares returned in, one report of all that was written out."""

    write: RowDeltaTask

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        written, gone = RowDeltaReport(), Gone(list)
        for batch in batches:
            for row in batch.to_pylist():
                if row["file"] is None:
                    written += pickle.loads(row["content"])
                else:
                    gone[row["file"]].append(np.frombuffer(row["content"], np.int64))
        yield report_row(replace(written, deletes=self.write.write_deletes(gone)))


def _sent(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_table(rows)
    sent: bytes = sink.getvalue().to_pybytes()
    return sent


def _received(rows: pa.BinaryScalar) -> pa.Table:
    return pa.ipc.open_stream(rows.as_buffer()).read_all()

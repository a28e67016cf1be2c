"""A merge in several Spark tasks: each writes the new rows of its share of the keys, then the deletes are written.

A data file has one file of deletes, and any share may take rows from it: so what the shares take from a data file comes
to one task. Only places travel, no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from jobs.iceberg.few_changes_task import FewChangesTask
from jobs.iceberg.row_delta_task import Gone, RowDeltaReport, RowDeltaTask
from jobs.spark_tasks import Batches, in_tasks, numbered, numbers, report_row, task_reports
from resources.errors import InvariantBroken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a share gives: its report, or the places that go from one data file, as 64-bit numbers.
_SHARE = pa.schema([("report", pa.string()), ("file", pa.string()), ("positions", pa.binary())])


def write_in_shares(spark: SparkSession, task: FewChangesTask) -> RowDeltaReport:
    """Has Spark's tasks write the changes of all shares."""
    from pyspark.sql.pandas.types import from_arrow_schema

    shares = numbered(spark, task.changes.shares).mapInArrow(in_tasks(NewRowsTask(task)), from_arrow_schema(_SHARE))
    return RowDeltaReport.sum_of(task_reports(shares.repartition("file"), DeletesTask(task.write)))


@dataclass(frozen=True)
class NewRowsTask:
    """The function of a task: numbers of shares in. Run again, it gives the same places, and the report of other files:
    one of them counts, since a report is one row."""

    task: FewChangesTask

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for share in numbers(batches):
            rows = self.task.rows(share)
            if rows is None:
                raise InvariantBroken(
                    "changes of several shares need more than themselves", where=self.task.write.where
                )
            report, gone = self.task.write.write_rows(rows.to_batches())
            yield _rows([report.to_text()], [None], [None])
            for file, positions in gone.items():
                yield _rows([None], [file], [np.concatenate(positions).tobytes()])


@dataclass(frozen=True)
class DeletesTask:
    """The function of a task: what the shares give in, one report of all that was written out."""

    write: RowDeltaTask

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        reports, gone = list[str](), Gone()
        for batch in batches:
            for row in batch.to_pylist():
                if row["report"] is not None:
                    reports.append(row["report"])
                else:
                    gone[row["file"]].append(np.frombuffer(row["positions"], np.int64))
        written = RowDeltaReport.sum_of(reports)
        deletes = [*written.deletes, *self.write.write_deletes(gone)]
        yield report_row(RowDeltaReport(written.effect, written.files, deletes).to_text())


def _rows(reports: list[str | None], files: list[str | None], positions: list[bytes | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"report": reports, "file": files, "positions": positions}, _SHARE)

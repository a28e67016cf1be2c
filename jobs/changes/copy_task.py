"""An append without a query: Spark's tasks copy the rows of landed files into files of the table.

No row passes the JVM, which would take it apart and put it together again, at several times the cost. Row groups of
which the table takes every row are copied byte for byte, without being decoded (`whole_groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table

from jobs.batch import LandedBatch
from jobs.changes.files import LandedFiles
from jobs.changes.landed_rows import LandedRows
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.reduction import Reduction
from jobs.changes.whole_groups import WholeGroups
from jobs.iceberg.append import Append
from jobs.iceberg.file_writer import writing
from jobs.iceberg.new_files import NewFile, NewFiles, writes_parquet
from jobs.iceberg.row_groups import copying
from jobs.spark.spark_tasks import Batches, OneTask, numbered, numbers, report_row, task_reports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class CopyTask:
    """The function of a task: numbers of shares in, descriptions of files out.

    Attributes:
        columns: the path of each of the table's columns in a landed row, by name.
        shares: into how many shares the landed files are divided.
        whole: row groups that are copied as they are; None: there are none.
    """

    landed: PlannedFiles
    first: int
    last: int
    columns: Mapping[str, tuple[str, ...]]
    files: NewFiles
    shares: int
    whole: WholeGroups | None = None

    def __call__(self, batches: Batches) -> Iterator[Any]:
        for number in numbers(batches):
            yield report_row(self._share(number))

    def _share(self, number: int) -> list[NewFile]:
        share = self.landed.share(number, self.shares)
        with copying(self.files, self.columns) as groups:
            if self.whole and share.files:
                share = share.of_files(self.whole.copy(share.landed.storage, share.files, groups))
        with writing(self.files) as writer:
            for rows in share.in_pieces(self.first, self.last):
                writer.write({name: rows.at(path) for name, path in self.columns.items()})
        return groups.written + writer.written


def files_to_copy(landed: LandedRows, wanted: Reduction, batches: Sequence[LandedBatch]) -> PlannedFiles | None:
    """The landed files of these batches; None if their rows have to be read through Iceberg."""
    files = LandedFiles.up_to(batches[-1], landed).taking(wanted.operations, wanted.route)
    planned = PlannedFiles.of(files, batches, [column.path for column in wanted.columns])
    return planned if planned.files is not None else None


def takes_copies(table: Table) -> bool:
    """Whether landed rows can be copied as they are: not into a partitioned or sorted table, whose rows Spark has to
    regroup first."""
    return writes_parquet(table.properties) and table.spec().is_unpartitioned() and table.sort_order().is_unsorted


def copy(
    session: Callable[[], SparkSession], one_task: OneTask, landed: PlannedFiles, wanted: Reduction, append: Append
) -> int:
    """Has Spark's tasks copy every change that the table takes, as it was landed; returns the number of rows.

    Args:
        one_task: runs work that needs a single task.
    """
    columns = {column.name: column.path for column in wanted.columns}
    whole = WholeGroups.of(landed, wanted.first, wanted.last, append.files)
    task = CopyTask(landed, wanted.first, wanted.last, columns, append.files, 1, whole)
    if landed.most_shares == 1:
        copied = one_task(session, task)
    else:
        from resources.spark import parallelism

        one_task.is_not_enough()
        shares = min(landed.most_shares, parallelism(session()))
        copied = task_reports(numbered(session(), shares), replace(task, shares=shares))
    for files in copied:
        append.add(files)
    return append.rows

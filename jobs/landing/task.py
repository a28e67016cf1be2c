"""The Spark tasks of landing: they decode records of a batch, write them as Parquet, and report to the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.iceberg.file_writer import FileWriter, writing
from jobs.iceberg.new_files import NewFiles
from jobs.landing.records import RecordReader
from jobs.landing.task_report import RecordOutcomes, TaskReport
from jobs.spark.spark_tasks import report_row


@dataclass(frozen=True)
class Selection:
    """Which of the shaped records are written.

    Attributes:
        operations: records with these ops are written; those with other ops count as filtered.
        bad_records: whether dead letters are written.
    """

    operations: tuple[str, ...]
    bad_records: bool


@dataclass(frozen=True)
class LandingTask:
    """The function of a task: its records in, one report out. Rows do not leave the worker.

    Attributes:
        constants: the columns of landed rows that are the same for the whole batch.
    """

    reader: RecordReader
    selection: Selection
    files: NewFiles
    constants: Mapping[str, pa.Scalar]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self.opened() as task:
            for records in batches:
                task.add(records)
        yield report_row(task.report)

    @contextmanager
    def opened(self) -> Iterator[OpenTask]:
        """Lands records that come in several calls. The report is complete at the end."""
        with writing(self.files) as writer:
            task = OpenTask(self, writer)
            yield task
        task.report = replace(task.report, files=tuple(writer.written))

    def columns(self, rows: pa.RecordBatch) -> Mapping[str, pa.Array]:
        """The table's columns of landed rows."""
        constants = {name: pa.repeat(value, rows.num_rows) for name, value in self.constants.items()}
        return {**constants, **{name: rows.column(name) for name in rows.schema.names}}


class OpenTask:
    """A running landing task.

    Attributes:
        report: of the records added so far; it has the files only at the end.
    """

    def __init__(self, task: LandingTask, writer: FileWriter) -> None:
        self._task, self._writer = task, writer
        self.report = TaskReport()

    def add(self, records: pa.RecordBatch) -> None:
        """Converts records to landed rows and writes those that are selected."""
        selection = self._task.selection
        for rows, found in self._task.reader.with_reports([records]):
            op, bad = rows.column("op"), pc.is_valid(rows.column("error"))
            wanted = pc.is_in(op, value_set=pa.array(selection.operations, pa.string()))
            self.report += replace(found, outcomes=RecordOutcomes.of(op, wanted, bad))
            chosen = pc.or_(wanted, bad) if selection.bad_records else wanted
            written = rows if pc.all(chosen).as_py() else rows.filter(chosen)
            self._writer.write(self._task.columns(written))

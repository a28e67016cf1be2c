"""What each Spark task does with its records of a batch: decode them, write them as Parquet, report to the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.iceberg.file_writer import FileWriter, conformed
from jobs.iceberg.new_files import NewFiles
from jobs.landing.records import RecordReader
from jobs.landing.task_report import Outcome, TaskReport
from jobs.spark_tasks import report_row
from resources.iceberg_errors import catalog_errors


@dataclass(frozen=True)
class Selection:
    """Which of the shaped records are written.

    Attributes:
        operations: the ops whose records are written; any other op counts as filtered.
        bad_records: dead letters are written.
    """

    operations: tuple[str, ...]
    bad_records: bool


@dataclass(frozen=True)
class LandingTask:
    """The function of a task: its records in, one report out. Rows stay on the worker.

    Attributes:
        where: the table, for errors.
        constants: the columns of landed rows that are the same for the whole batch.
    """

    where: str
    reader: RecordReader
    selection: Selection
    files: NewFiles
    constants: Mapping[str, pa.Scalar]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self.opened() as task:
            for records in batches:
                task.add(records)
        yield report_row(task.report.to_text())

    @contextmanager
    def opened(self) -> Iterator[OpenTask]:
        """For records that come in several calls; an exception leaves no file, and the report is whole at the end."""
        with catalog_errors(self.where), FileWriter(self.files) as writer:
            task = OpenTask(self, writer)
            yield task
        task.report = replace(task.report, files=tuple(file.to_json(self.files) for file in writer.written))

    def columns(self, rows: pa.RecordBatch) -> Mapping[str, pa.Array]:
        """What the table's columns have of landed rows."""
        constants = {name: pa.repeat(value, rows.num_rows) for name, value in self.constants.items()}
        return {**constants, **{name: rows.column(name) for name in rows.schema.names}}


class OpenTask:
    """A landing task at work.

    Attributes:
        report: of what was added so far; the files when all is written.
    """

    def __init__(self, task: LandingTask, writer: FileWriter) -> None:
        self._task, self._writer = task, writer
        self.report = TaskReport()

    def add(self, records: pa.RecordBatch) -> None:
        """Shapes records and writes those that are selected."""
        selection = self._task.selection
        for rows, found in self._task.reader.with_reports([records]):
            op, bad = rows.column("op"), pc.is_valid(rows.column("error"))
            wanted = pc.is_in(op, value_set=pa.array(selection.operations, pa.string()))
            self.report += replace(found, outcome=Outcome.of(op, wanted, bad))
            self._write(rows, pc.or_(wanted, bad) if selection.bad_records else wanted)

    def _write(self, rows: pa.RecordBatch, chosen: pa.Array) -> None:
        if not pc.all(chosen).as_py():
            rows = rows.filter(chosen)
        if rows.num_rows:
            self._writer.write(conformed(self._task.columns(rows), self._task.files.arrow_schema))

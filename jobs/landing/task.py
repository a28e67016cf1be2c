"""What each of Spark's tasks does with its records of a batch: decode them, write them as Parquet, tell the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.iceberg.file_writer import FileWriter, conformed
from jobs.iceberg.new_files import NewFiles
from jobs.landing.records import RecordReader
from jobs.landing.task_report import Outcome, TaskReport
from jobs.spark_tasks import told
from resources.iceberg_errors import catalog_errors


@dataclass(frozen=True)
class Selection:
    """Which of the shaped records are written, and as which columns.

    Attributes:
        operations: the ops whose records are written; any other op counts as filtered.
        bad_records: dead letters are written.
        columns: by name where each column of the table is in a landed row; None: the table has landed rows.
    """

    operations: tuple[str, ...]
    bad_records: bool
    columns: Mapping[str, tuple[str, ...]] | None = None


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
        report = TaskReport()
        with catalog_errors(self.where), FileWriter(self.files) as writer:
            for rows, found in self.reader.with_reports(batches):
                op, bad = rows.column("op"), pc.is_valid(rows.column("error"))
                wanted = pc.is_in(op, value_set=pa.array(self.selection.operations, pa.string()))
                report += replace(found, outcome=Outcome.of(op, wanted, bad))
                self._write(rows, pc.or_(wanted, bad) if self.selection.bad_records else wanted, writer)
        report = replace(report, files=tuple(file.to_json(self.files) for file in writer.written))
        yield told(report.to_text())

    def _write(self, rows: pa.RecordBatch, chosen: pa.Array, writer: FileWriter) -> None:
        if not pc.all(chosen).as_py():
            rows = rows.filter(chosen)
        if rows.num_rows:
            writer.write(conformed(self._columns(rows), self.files.arrow_schema))

    def _columns(self, rows: pa.RecordBatch) -> Mapping[str, pa.Array]:
        constants = {name: pa.repeat(value, rows.num_rows) for name, value in self.constants.items()}
        landed = {**constants, **{name: rows.column(name) for name in rows.schema.names}}
        if self.selection.columns is None:
            return landed
        return {name: _at(landed, path) for name, path in self.selection.columns.items()}


def _at(columns: Mapping[str, pa.Array], path: tuple[str, ...]) -> pa.Array:
    head, *parts = path
    return pc.struct_field(columns[head], parts) if parts else columns[head]

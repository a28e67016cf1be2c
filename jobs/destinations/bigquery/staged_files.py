"""Rows that BigQuery cannot read from the landed files: Spark's tasks write them to Parquet files and report these.

Files go to a folder that BigQuery reads (`staging_folder`), and one load job takes those of all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from jobs.added import Added
from jobs.destinations.bigquery.field import AnyField
from jobs.destinations.bigquery.flush import RefusedCounts
from jobs.destinations.bigquery.staging import Stager, arrow_type
from jobs.destinations.bigquery.staging_folder import StagingFolder
from jobs.destinations.refusal import DEAD_LETTER_ROW, Refusal
from jobs.groups import filled, groups
from jobs.spark.spark_tasks import Batches, report_row
from resources.iceberg_errors import catalog_errors

# Rows of a row group, and their bytes: they wait in memory until it is full.
_GROUP_ROWS = 250_000
_GROUP_BYTES = 256 << 20
# Of a column's dictionary. Values that repeat are loaded faster with one; others soon fill it, and go on without.
_DICTIONARY_BYTES = 64 << 10


@dataclass(frozen=True)
class Staged(Added):
    """What one task wrote, or all tasks together.

    Attributes:
        rows: how many are in `files`.
        files, empty, dead_letters: paths of files with rows, without rows, and with dead letters of refused rows.
    """

    rows: int = 0
    counts: RefusedCounts = field(default_factory=RefusedCounts)
    files: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    dead_letters: tuple[str, ...] = ()

    @property
    def loaded(self) -> tuple[str, ...]:
        """The files to load: a load needs at least one, even without rows."""
        return self.files or self.empty[:1]

    @property
    def written(self) -> tuple[str, ...]:
        """All of these files."""
        return (*self.files, *self.empty, *self.dead_letters)


@dataclass(frozen=True)
class RowsFile:
    """How the rows of one task become a Parquet file; travels to Spark's workers.

    Attributes:
        stager: shapes rows of `RowShape`.
    """

    stager: Stager
    refusal: Refusal

    def write(self, storage: FileIO, path: str, parts: Iterable[pa.Table]) -> tuple[Staged, pa.Table]:
        """Writes one file, even without rows; returns what was written, and the dead letters of refused rows.

        Raises:
            BadRecords: a row is refused under the policy `fail`. StorageError, Unavailable: the file cannot be written.
        """
        rows, counts, dead_letters = 0, RefusedCounts(), list[pa.Table]()

        def shaped() -> Iterator[pa.Table]:
            nonlocal counts
            for part in parts:
                fit = self.refusal.fit(part)
                counts += RefusedCounts(fit.dead_letters.num_rows, fit.out_of_range)
                dead_letters.append(fit.dead_letters)
                if fit.rows.num_rows:
                    yield pa.Table.from_batches([self.stager.shape(b) for b in fit.rows.combine_chunks().to_batches()])

        with catalog_errors(self.refusal.where), ExitStack() as opened:
            writer: pq.ParquetWriter | None = None
            for waiting in groups(shaped(), _part_of_a_group, 1):
                group = pa.concat_tables(waiting).combine_chunks()
                writer = writer or _open(storage, path, group.schema, opened)
                writer.write_table(group)
                rows += group.num_rows
            if writer is None:
                _open(storage, path, pa.schema([_empty(f) for f in self.stager.present]), opened)
        written = Staged(rows, counts, files=(path,)) if rows else Staged(counts=counts, empty=(path,))
        return written, pa.concat_tables([DEAD_LETTER_ROW.empty_table(), *dead_letters])


@dataclass(frozen=True)
class StagingTask:
    """The function of a task: numbers of shares, or rows, in; one report out.

    Attributes:
        parts: makes rows of `RowShape` from the task's input.
        folder: where files go.
        writes_dead_letters: for refused rows.
    """

    file: RowsFile
    parts: Callable[[Batches], Iterator[pa.Table]]
    folder: StagingFolder
    writes_dead_letters: bool = True

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        path = self.folder.new_path("rows")
        written, dead_letters = self.file.write(self.folder.storage, path, self.parts(batches))
        yield report_row(written + Staged(dead_letters=self._keep(dead_letters)))

    def _keep(self, dead_letters: pa.Table) -> tuple[str, ...]:
        if not (self.writes_dead_letters and dead_letters.num_rows):
            return ()
        path = self.folder.new_path("letters")
        with catalog_errors(self.file.refusal.where), ExitStack() as opened:
            plain = dead_letters_as_loaded(dead_letters)
            _open(self.folder.storage, path, plain.schema, opened).write_table(plain)
        return (path,)


def dead_letters_as_loaded(dead_letters: pa.Table) -> pa.Table:
    """Dead letters with all whole numbers as int64, as BigQuery reads INTEGER from Parquet."""
    fields = [f.with_type(pa.int64()) if pa.types.is_integer(f.type) else f for f in dead_letters.schema]
    return dead_letters.cast(pa.schema(fields))


def _part_of_a_group(rows: pa.Table) -> float:
    return filled(rows.num_rows, rows.nbytes, _GROUP_ROWS, _GROUP_BYTES)


def _open(storage: FileIO, path: str, schema: pa.Schema, opened: ExitStack) -> pq.ParquetWriter:
    stream = opened.enter_context(storage.new_output(path).create())
    # It is read once, as a whole, and removed: statistics would only cost time.
    options = {"compression": "snappy", "dictionary_pagesize_limit": _DICTIONARY_BYTES, "write_statistics": False}
    return opened.enter_context(pq.ParquetWriter(stream, schema, **options))


def _empty(field_: AnyField) -> pa.Field:
    return pa.field(field_.name, arrow_type(field_), field_.mode != "REQUIRED")

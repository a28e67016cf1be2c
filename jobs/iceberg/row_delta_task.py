"""Spark tasks that write changes to data files, and the positions of the rows that they replace to delete files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.added import Added
from jobs.iceberg.file_writer import FileWriter, conformed
from jobs.iceberg.new_files import NewFile, NewFiles
from jobs.iceberg.position_deletes import BaseFile, NewDeletes, Positions, write_deletes
from jobs.spark.spark_tasks import Batches, report_row
from resources.iceberg_errors import catalog_errors


class Gone(defaultdict[str, list[Positions]]):
    """Positions of the rows to delete, by data file."""

    def __init__(self) -> None:
        super().__init__(list)


@dataclass(frozen=True)
class Effect(Added):
    """The effect of changes on a table, in numbers.

    Attributes:
        changes: the number of changes.
        duplicates: the number of keys of which the table had more than one row.
    """

    changes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    duplicates: int = 0


@dataclass(frozen=True)
class RowDeltaReport(Added):
    """What one task or all tasks wrote."""

    effect: Effect = field(default_factory=Effect)
    files: tuple[NewFile, ...] = ()
    deletes: tuple[NewDeletes, ...] = ()


@dataclass(frozen=True)
class RowDeltaTask:
    """The function of a task: rows of `sql/spark/row_delta.sql.j2` in, one report out.

    One task gets all deletes of a data file.

    Attributes:
        where: the table, for errors.
        base: the data files from which rows may be deleted, by path.
    """

    where: str
    files: NewFiles
    base: Mapping[str, BaseFile]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        report, gone = self.write_rows(batches)
        yield report_row(replace(report, deletes=self.write_deletes(gone)))

    def write_rows(self, batches: Batches) -> tuple[RowDeltaReport, Gone]:
        """Writes the new rows; returns their report, and the positions of the rows to delete."""
        effect, gone = Effect(), Gone()
        with catalog_errors(self.where), FileWriter(self.files) as writer:
            for rows in batches:
                effect += _effect(rows)
                self._write(rows, writer)
                _note_gone(rows, gone)
        return RowDeltaReport(effect, tuple(writer.written)), gone

    def write_deletes(self, gone: Gone) -> tuple[NewDeletes, ...]:
        """Writes the deletes of some data files; `gone` has all of each."""
        with catalog_errors(self.where):
            return tuple(
                write_deletes(self.files, self.base[path], np.concatenate(positions))
                for path, positions in gone.items()
            )

    def _write(self, rows: pa.RecordBatch, writer: FileWriter) -> None:
        new = rows.filter(rows["__bm_writes"])
        if new.num_rows:
            columns = {name: new[name] for name in new.schema.names if name not in _OWN}
            writer.write(conformed(columns, self.files.arrow_schema))


_OWN = ("__op", "__hit", "__bm_file", "__bm_pos", "__bm_writes", "__bm_removes")


def _effect(rows: pa.RecordBatch) -> Effect:
    hit, writes, removes = rows["__hit"], rows["__bm_writes"], rows["__bm_removes"]
    known, is_delete = pc.greater(hit, 0), pc.equal(rows["__op"], "delete")
    masks = {
        "changes": pc.less_equal(hit, 1),
        "inserted": pc.and_(writes, pc.invert(known)),
        "updated": pc.and_(writes, known),
        "deleted": pc.and_(removes, is_delete),
        "duplicates": pc.equal(hit, 2),
    }
    return Effect(**{name: pc.sum(mask).as_py() or 0 for name, mask in masks.items()})


def _note_gone(rows: pa.RecordBatch, gone: Gone) -> None:
    found = rows.filter(rows["__bm_removes"])
    if not found.num_rows:
        return
    paths = pc.dictionary_encode(found["__bm_file"])
    numbers, positions = paths.indices.to_numpy(), found["__bm_pos"].to_numpy()
    for number, path in enumerate(paths.dictionary.to_pylist()):
        gone[path].append(positions[numbers == number])

"""Spark tasks that write changes to data files, and the positions of the rows that they replace to delete files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.added import Added
from jobs.batch import MergeCounts
from jobs.iceberg.file_writer import writing
from jobs.iceberg.new_files import NewFile, NewFiles
from jobs.iceberg.position_deletes import BaseFile, NewDeletes, Positions, write_deletes
from jobs.spark.spark_tasks import Batches, report_row
from resources.iceberg_errors import catalog_errors

Gone = defaultdict[str, list[Positions]]
"""Positions of the rows to delete, by data file."""


@dataclass(frozen=True)
class RowDeltaReport(Added):
    """What one task or all tasks wrote.

    Attributes:
        duplicates: the number of keys of which the table had more than one row.
    """

    counts: MergeCounts = field(default_factory=MergeCounts)
    duplicates: int = 0
    files: tuple[NewFile, ...] = ()
    deletes: tuple[NewDeletes, ...] = ()


@dataclass(frozen=True)
class RowDeltaTask:
    """The function of a task: rows of `sql/spark/row_delta.sql.j2` in, one report out.

    One task gets all deletes of a data file.

    Attributes:
        base: the data files from which rows may be deleted, by path.
    """

    files: NewFiles
    base: Mapping[str, BaseFile]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        report, gone = self.write_rows(batches)
        yield report_row(replace(report, deletes=self.write_deletes(gone)))

    def write_rows(self, batches: Batches) -> tuple[RowDeltaReport, Gone]:
        """Writes the new rows; returns their report, and the positions of the rows to delete."""
        report, gone = RowDeltaReport(), Gone(list)
        with writing(self.files) as writer:
            for rows in batches:
                report += _counted(rows)
                new = rows.filter(rows["__bm_writes"])
                writer.write({name: new[name] for name in new.schema.names if name not in _OWN})
                _note_gone(rows, gone)
        return replace(report, files=tuple(writer.written)), gone

    def write_deletes(self, gone: Gone) -> tuple[NewDeletes, ...]:
        """Writes the deletes of some data files; `gone` has all of each."""
        with catalog_errors(self.files.where):
            return tuple(
                write_deletes(self.files, self.base[path], np.concatenate(positions))
                for path, positions in gone.items()
            )


_OWN = ("__op", "__hit", "__bm_file", "__bm_pos", "__bm_writes", "__bm_removes")


def _counted(rows: pa.RecordBatch) -> RowDeltaReport:
    hit, writes, removes = rows["__hit"], rows["__bm_writes"], rows["__bm_removes"]
    known, is_delete = pc.greater(hit, 0), pc.equal(rows["__op"], "delete")
    masks = {
        "changes": pc.less_equal(hit, 1),
        "inserted": pc.and_(writes, pc.invert(known)),
        "updated": pc.and_(writes, known),
        "deleted": pc.and_(removes, is_delete),
    }
    counts = MergeCounts(**{name: mask.true_count for name, mask in masks.items()})
    return RowDeltaReport(counts, pc.equal(hit, 2).true_count)


def _note_gone(rows: pa.RecordBatch, gone: Gone) -> None:
    found = rows.filter(rows["__bm_removes"])
    if not found.num_rows:
        return
    paths = pc.dictionary_encode(found["__bm_file"])
    numbers, positions = paths.indices.to_numpy(), found["__bm_pos"].to_numpy()
    for number, path in enumerate(paths.dictionary.to_pylist()):
        gone[path].append(positions[numbers == number])

"""Folds data files within a batch's commit, so that scans are fast until the next maintenance.

Sixteen or more small files of a partition are read, without their deleted rows, and written as one; their delete files
are removed. A row is written again about once each time that its file has grown sixteenfold. A worn file, a twelfth of
whose rows is deleted, is written again without them: eleven rows for each deleted one. Scans read deleted rows as well
and look for each row of such a file among the positions, which may cost more than the row itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from jobs.iceberg.file_writer import SORTED_FILE_BYTES, writing
from jobs.iceberg.new_files import NewFile, NewFiles
from jobs.iceberg.position_deletes import BaseFile, deleted_positions
from jobs.iceberg.row_delta_task import RowDeltaReport
from jobs.spark.spark_tasks import Batches, numbers, report_row
from resources import iceberg_arrow  # noqa: F401  # null lists stay null

_FILES_PER_FOLD = 16
# A file is small if it is below both limits. Writers end files above one of them (except the last of a fold), so the
# result of a fold is not folded again.
_SMALL_BYTES = SORTED_FILE_BYTES
_SMALL_ROWS = 200_000
# The most that one batch folds: many small files of an existing table are folded over several batches.
_MOST_FILES = 4 * _FILES_PER_FOLD
_MOST_BYTES = 16 * _SMALL_BYTES
# The share of deleted rows from which a file, or the small files of a partition, are worn, and the fewest deleted rows
# that are worth a task.
_WORN = 1 / 12
_LEAST_GONE = 10_000
# The most worn files that one batch folds, which takes a core less than a second. Larger ones wait for maintenance.
_MOST_WORN_BYTES = 4 * _SMALL_BYTES
_MOST_WORN_ROWS = 5 * _SMALL_ROWS


def foldable(
    files: Iterable[DataFile], gone: Mapping[str, int], spec_id: int, target_bytes: int
) -> list[list[DataFile]]:
    """Groups of files to fold, each of one partition: many small files, those with most files first; else worn files.

    Args:
        gone: how many rows of a file are deleted, by path.
        spec_id: of the current partition spec; files of other specs are not folded.
        target_bytes: the target size of the table's data files.
    """
    small, large = defaultdict[Any, list[DataFile]](list), list[list[DataFile]]()
    most = min(_SMALL_BYTES, target_bytes // _FILES_PER_FOLD)
    for file in files:
        if file.spec_id != spec_id or file.file_format != FileFormat.PARQUET:
            continue
        if file.file_size_in_bytes < most and file.record_count < _SMALL_ROWS:
            small[file.partition].append(file)
        else:
            large.append([file])
    return _many(small.values()) or _worn([*small.values(), *large], gone)


def _many(groups: Iterable[list[DataFile]]) -> list[list[DataFile]]:
    found, count, size = list[list[DataFile]](), 0, 0
    for group in sorted(groups, key=len, reverse=True):
        part = list[DataFile]()
        for file in group:
            if count < _MOST_FILES and size + file.file_size_in_bytes <= _MOST_BYTES:
                part.append(file)
                count, size = count + 1, size + file.file_size_in_bytes
        if len(part) >= _FILES_PER_FOLD:
            found.append(part)
    return found


def _worn(groups: Iterable[list[DataFile]], gone: Mapping[str, int]) -> list[list[DataFile]]:
    """The most worn ones of these groups."""

    def share(group: list[DataFile]) -> float:
        deleted = sum(gone.get(file.file_path, 0) for file in group)
        return deleted / sum(file.record_count for file in group) if deleted >= _LEAST_GONE else 0

    found, rows, size = list[list[DataFile]](), 0, 0
    for group in sorted((group for group in groups if share(group) >= _WORN), key=share, reverse=True):
        more = sum(file.record_count for file in group), sum(file.file_size_in_bytes for file in group)
        if rows + more[0] <= _MOST_WORN_ROWS and size + more[1] <= _MOST_WORN_BYTES:
            found.append(group)
            rows, size = rows + more[0], size + more[1]
    return found


@dataclass(frozen=True)
class Group:
    """Files that are folded into one.

    Attributes:
        partition: of all files; imported files do not contain it.
        files: each with the delete files that it has after this batch.
    """

    partition: Record
    files: Sequence[BaseFile]


@dataclass(frozen=True)
class FoldTask:
    """The function of a task: numbers of groups in, a report of the files that were written out.

    Attributes:
        metadata: the table's, as `jobs.iceberg.readable` returns it.
    """

    files: NewFiles
    metadata: TableMetadata
    groups: Sequence[Group]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            yield report_row(RowDeltaReport(files=tuple(self._fold(self.groups[number]))))

    def _fold(self, group: Group) -> list[NewFile]:
        scan = ArrowScan(self.metadata, self.files.storage, self.files.schema, AlwaysTrue())
        with writing(self.files) as writer:
            for file in group.files:
                begin, is_left = 0, self._left(file)
                # In their order. To apply the deletes pyiceberg would take longer than to write the rows.
                for rows in scan.to_record_batches([FileScanTask(self._data_file(file.path, group))]):
                    left = rows.filter(pa.array(is_left[begin : begin + len(rows)]))
                    writer.write(dict(zip(left.schema.names, left.columns, strict=True)))
                    begin += len(rows)
        return writer.written

    def _left(self, file: BaseFile) -> npt.NDArray[np.bool_]:
        """Which rows of the file are not deleted."""
        found = np.ones(file.rows, np.bool_)
        found[deleted_positions(self.files.storage, file)] = False
        return found

    def _data_file(self, path: str, group: Group) -> DataFile:
        found = DataFile.from_args(
            content=DataFileContent.DATA, file_path=path, file_format=FileFormat.PARQUET, partition=group.partition
        )
        found.spec_id = self.files.spec.spec_id
        return found

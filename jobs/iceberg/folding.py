"""Folds small data files into one within a batch's commit, so that scans are fast until the next maintenance.

Sixteen or more small files of a partition are read, without their deleted rows, and written as one; their delete files
are removed. A row is written again about once each time that its file has grown sixteenfold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from jobs.iceberg.file_writer import SORTED_FILE_BYTES, writing
from jobs.iceberg.new_files import NewFile, NewFiles
from jobs.iceberg.position_deletes import BaseFile
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


def foldable(files: Iterable[DataFile], spec_id: int, target_bytes: int) -> list[list[DataFile]]:
    """Groups of small files of one partition that are large enough to fold; groups with most files first.

    Args:
        spec_id: of the current partition spec; files of other specs are not folded.
        target_bytes: the target size of the table's data files.
    """
    groups = defaultdict[Any, list[DataFile]](list)
    most = min(_SMALL_BYTES, target_bytes // _FILES_PER_FOLD)
    for file in files:
        small = file.file_size_in_bytes < most and file.record_count < _SMALL_ROWS
        if small and file.spec_id == spec_id and file.file_format == FileFormat.PARQUET:
            groups[file.partition].append(file)
    found, count, size = list[list[DataFile]](), 0, 0
    for group in sorted(groups.values(), key=len, reverse=True):
        part = list[DataFile]()
        for file in group:
            if count < _MOST_FILES and size + file.file_size_in_bytes <= _MOST_BYTES:
                part.append(file)
                count, size = count + 1, size + file.file_size_in_bytes
        if len(part) >= _FILES_PER_FOLD:
            found.append(part)
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
                deletes = {self._file(path, group, DataFileContent.POSITION_DELETES) for path in file.deletes}
                data = self._file(file.path, group, DataFileContent.DATA)
                for rows in scan.to_record_batches([FileScanTask(data, deletes)]):
                    writer.write(dict(zip(rows.schema.names, rows.columns, strict=True)))
        return writer.written

    def _file(self, path: str, group: Group, content: DataFileContent) -> DataFile:
        parquet = FileFormat.PARQUET
        found = DataFile.from_args(content=content, file_path=path, file_format=parquet, partition=group.partition)
        found.spec_id = self.files.spec.spec_id
        return found

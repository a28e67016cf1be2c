"""Position delete files: which rows of a data file are deleted. Each data file has one, which replaces its predecessor.

If a delete file names a single data file, its bounds show that, so readers open it only with that data file.
https://iceberg.apache.org/spec/#position-delete-files
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2

from jobs.iceberg.new_files import NewFiles

# Reserved field ids of the specification.
_PATH_ID, _POSITION_ID = 2147483546, 2147483545
# A dictionary, so that the writer does not hash a long path for every row (100,000 positions: 4 ms).
_PATH = pa.field("file_path", pa.dictionary(pa.int32(), pa.string()), False, {"PARQUET:field_id": str(_PATH_ID)})
_SCHEMA = pa.schema([_PATH, pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION_ID)})])

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BaseFile:
    """A data file of a commit's base snapshot, and the delete files that are only for it."""

    path: str
    rows: int
    deletes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NewDeletes:
    """Deleted rows of a data file, as a task describes them to the run.

    Attributes:
        data_file: the path of the file whose rows are deleted.
        path: the position delete file that was written; None: no row is left, so the data file is removed instead.
        rows: how many of the file's rows are deleted, including those of earlier commits.
        replaced: the earlier delete files whose positions are in this one.
    """

    data_file: str
    path: str | None
    rows: int
    size: int
    replaced: tuple[str, ...] = ()

    def to_file(self, of: DataFile) -> DataFile:
        """The delete file as an entry of Iceberg's manifests; `of` is the data file's."""
        assert self.path is not None, "it was written"
        # Equal, not truncated bounds tell readers that the file is for this data file only.
        bound = {_PATH_ID: self.data_file.encode()}
        found = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=of.partition,
            record_count=self.rows,
            file_size_in_bytes=self.size,
            lower_bounds=bound,
            upper_bounds=bound,
        )
        found.spec_id = of.spec_id
        return found


def write_deletes(files: NewFiles, file: BaseFile, positions: Positions) -> NewDeletes:
    """Writes these positions together with those of the file's existing delete files; no file if no row is left."""
    gone = _united([positions, deleted_positions(files.storage, file)])
    if len(gone) == file.rows:
        return NewDeletes(file.path, None, len(gone), 0, file.deletes)
    path = files.new_path((), "-deletes")
    names = pa.DictionaryArray.from_arrays(np.zeros(len(gone), np.int32), [file.path])
    with files.storage.new_output(path).create() as stream:
        rows = pa.Table.from_arrays([names, pa.array(gone)], schema=_SCHEMA)
        pq.write_table(rows, stream, compression="zstd", use_dictionary=["file_path"], store_schema=False)
        size = stream.tell()
    return NewDeletes(file.path, path, len(gone), size, file.deletes)


def _united(positions: Sequence[Positions]) -> Positions:
    """The same result as `numpy.unique`, which hashes and takes ten times as long."""
    ordered = np.sort(np.concatenate(positions), kind="stable")
    return ordered[np.diff(ordered, prepend=-1) > 0]


def deleted_positions(storage: FileIO, file: BaseFile) -> Positions:
    """The positions in all delete files of a data file, in no order."""
    return np.concatenate([np.empty(0, np.int64), *(_read_positions(storage, path) for path in file.deletes)])


def _read_positions(storage: FileIO, path: str) -> Positions:
    with storage.new_input(path).open() as source:
        found: Positions = pq.ParquetFile(source).read(columns=["pos"], use_threads=False)["pos"].to_numpy()
    return found


def only_data_file(deletes: DataFile) -> str | None:
    """The only data file that this delete file is for; None if it may be for several (Spark writes such too)."""
    if deletes.content != DataFileContent.POSITION_DELETES or deletes.file_format != FileFormat.PARQUET:
        return None
    low, high = ((bounds or {}).get(_PATH_ID) for bounds in (deletes.lower_bounds, deletes.upper_bounds))
    # Truncated bounds are harmless: they match no data file's path.
    return low.decode() if low is not None and low == high else None


def by_data_file(deletes: Iterable[DataFile]) -> dict[str, tuple[str, ...]]:
    """The paths of delete files that are for a single data file, by that file's path."""
    found: dict[str, tuple[str, ...]] = {}
    for file in deletes:
        if data_file := only_data_file(file):
            found[data_file] = (*found.get(data_file, ()), file.file_path)
    return found


class DeleteManifestWriter(ManifestWriterV2):
    """pyiceberg's own writer marks every manifest as one of data files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

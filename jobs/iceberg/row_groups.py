"""Copies row groups of Parquet files byte for byte into data files of a table that has some of their columns.

Nothing is decoded: the pages of a column are the same in both files wherever the column is stored in the same form
(`Node.form`), and only the footer is another. A field of a struct has the form of a column if the struct is
required (`NewFiles.full`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import SEEK_END
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from jobs.iceberg.file_writer import FORM, completed, described
from jobs.iceberg.new_files import NewFile, NewFiles
from jobs.iceberg.parquet_footer import (
    END,
    MAGIC,
    Chunk,
    Column,
    Fields,
    File,
    Group,
    Node,
    Statistic,
    listed,
    only,
    parsed,
    scalar,
    schema,
    with_values,
    written,
)
from resources.errors import StorageError
from resources.iceberg_errors import catalog_errors

Path = tuple[str, ...]
Columns = Sequence[tuple[int, Path]]
"""The numbers of Parquet columns in a file to copy from, each with its path in the table."""
Bounds = tuple[bytes, bytes] | None
# Where the pages of a column are, and where what else there may be of it.
_PAGES = (Column.PAGES, Column.DICTIONARY)
_NOT_COPIED = (Column.INDEX, Column.BLOOM, Column.BLOOM_BYTES)


@dataclass(frozen=True)
class Source:
    """A Parquet file to copy from.

    Attributes:
        stream: its bytes.
    """

    path: str
    stream: Any
    footer: Fields

    @classmethod
    @contextmanager
    def opened(cls, storage: FileIO, path: str) -> Iterator[Source]:
        """
        Raises:
            StorageError, Unavailable: it cannot be read.
        """
        with catalog_errors(path):
            stream = storage.new_input(path).open()
        with stream:
            yield cls(path, stream, parsed(_footer(stream, path)))

    @property
    def groups(self) -> Sequence[Fields]:
        return listed(self.footer, File.GROUPS)

    @cached_property
    def schema(self) -> Node:
        return schema(self.footer)

    def at(self, path: Path) -> Node | None:
        """The column at this path, if nothing around it can be null; None: there is none."""
        found: Node | None = self.schema
        for name in path:
            if found is None or not (found is self.schema or found.is_required):
                return None
            found = found.child(name)
        return found

    def rows(self, group: int) -> int:
        """How many rows a row group has."""
        return int(scalar(self.groups[group], Group.ROWS))

    def size(self, group: int, columns: Columns) -> int:
        """How many bytes these columns of a row group have."""
        return sum(scalar(self._column(group, leaf), Column.COMPRESSED) for leaf, _ in columns)

    def nulls(self, group: int, path: Path) -> int | None:
        """How many values of this column are null in a row group; None: it is not known."""
        statistics = self._statistics(group, path)
        return None if statistics is None else scalar(statistics, Statistic.NULLS)

    def bounds(self, group: int, path: Path) -> Bounds:
        """The least and the greatest value in a row group, as they are stored; None: they are not known."""
        statistics = self._statistics(group, path) or {}
        least, most = (scalar(statistics, name) for name in (Statistic.LEAST, Statistic.MOST))
        return None if least is None or most is None else (least, most)

    def _statistics(self, group: int, path: Path) -> Fields | None:
        column = self.at(path)
        if column is None:
            return None
        found: Fields | None = scalar(self._column(group, column.leaves.start), Column.STATISTICS)
        return found

    def _column(self, group: int, leaf: int) -> Fields:
        found: Fields = listed(self.groups[group], Group.COLUMNS)[leaf][Chunk.METADATA].value
        return found

    def read(self, metadata: Fields) -> bytes:
        """The pages of a column of a row group."""
        return _read(self.stream, self.path, _begin(metadata), scalar(metadata, Column.COMPRESSED))


class RowGroupWriter:
    """Writes data files of copied row groups.

    Attributes:
        written: the complete files.
    """

    def __init__(self, files: NewFiles, columns: Mapping[str, Path]) -> None:
        """Args:
        columns: the path of each of the table's columns in the files to copy from, by name.
        """
        self._files = files
        self._paths = {name.lower(): path for name, path in columns.items()}
        self._open: _CopiedFile | None = None
        self.written: list[NewFile] = []

    @cached_property
    def _empty(self) -> Fields:
        """The footer of a file of the table without rows."""
        made = pa.BufferOutputStream()
        pq.ParquetWriter(made, self._files.arrow_schema, **FORM).close()
        return parsed(_footer(pa.BufferReader(made.getvalue()), self._files.where))

    def columns_in(self, source: Source) -> Columns | None:
        """Which Parquet columns of the source are those of the table; None: the source lacks one, has one in another
        form, or was written by another writer, whose statistics readers may take otherwise."""
        if any(source.footer.get(name) != self._empty.get(name) for name in (File.VERSION, File.CREATED_BY)):
            return None
        found = list[tuple[int, Path]]()
        for column in schema(self._empty).children:
            path = self._paths.get(column.name.lower())
            own = source.at(path) if path else None
            if own is None or own.form != column.form:
                return None
            found += zip(own.leaves, _paths_of(column), strict=True)
        return found

    def copy(self, source: Source, group: int, columns: Columns) -> None:
        """Copies these columns (`columns_in`) of a row group."""
        self._open = self._open or _CopiedFile(self._files)
        self._open.copy(source, group, columns)
        if self._open.size >= self._files.target_bytes:
            self.close()

    def close(self) -> None:
        """Completes the open file."""
        if self._open:
            self.written.append(self._open.close(self._empty))
            self._open = None

    def abandon(self) -> None:
        """Leaves the open file incomplete."""
        if self._open:
            self._open.stream.close()


def copying(files: NewFiles, columns: Mapping[str, Path]) -> AbstractContextManager[RowGroupWriter]:
    """Copies row groups into files of one task (`completed`)."""
    return completed(RowGroupWriter(files, columns), files.where)


class _CopiedFile:
    """One file that row groups are added to.

    Attributes:
        size: in bytes, so far.
    """

    def __init__(self, files: NewFiles) -> None:
        self._files, self._path = files, files.new_path(())
        self._groups: list[Fields] = []
        self.stream: Any = files.storage.new_output(self._path).create()
        self.size = 0
        self._write(MAGIC)

    def copy(self, source: Source, group: int, columns: Columns) -> None:
        begin, given, sizes = self.size, source.groups[group], dict[int, int]()
        chunks = [self._copied(source, listed(given, Group.COLUMNS)[leaf], path) for leaf, path in columns]
        for of, size in ((Group.BYTES, Column.BYTES), (Group.COMPRESSED, Column.COMPRESSED)):
            sizes[of] = sum(scalar(chunk[Chunk.METADATA].value, size) for chunk in chunks)
        self._groups.append(with_values(only(given, Group), {**sizes, Group.COLUMNS: chunks, Group.OFFSET: begin}))

    def _copied(self, source: Source, chunk: Fields, path: Path) -> Fields:
        """Copies the pages of a column; returns its description, with their new place and this path."""
        metadata = chunk[Chunk.METADATA].value
        by = self.size - _begin(metadata)
        self._write(source.read(metadata))
        new: dict[int, Any] = {name: scalar(metadata, name) + by for name in _PAGES if name in metadata}
        new |= {**dict.fromkeys(_NOT_COPIED), Column.PATH: [name.encode() for name in path]}
        return with_values(only(chunk, Chunk), {Chunk.FILE_OFFSET: 0, Chunk.METADATA: with_values(metadata, new)})

    def close(self, empty: Fields) -> NewFile:
        rows = sum(scalar(group, Group.ROWS) for group in self._groups)
        footer = written(with_values(empty, {File.ROWS: rows, File.GROUPS: self._groups}))
        self._write(footer)
        self.stream.close()
        return described(self._files, self._path, self.size, pq.read_metadata(pa.BufferReader(MAGIC + footer)))

    def _write(self, data: bytes) -> None:
        self.stream.write(data)
        self.size += len(data)


def _begin(metadata: Fields) -> int:
    """Where the pages of a column of a row group begin in the file."""
    return int(min(scalar(metadata, name) for name in _PAGES if name in metadata))


def _paths_of(column: Node) -> list[Path]:
    """The paths of all Parquet columns in a column."""
    below = [path for child in column.children for path in _paths_of(child)]
    return [(column.name, *path) for path in below] if column.children else [(column.name,)]


def _footer(stream: Any, path: str) -> bytes:
    with catalog_errors(path):
        end = stream.seek(0, SEEK_END) - END
    last = _read(stream, path, end, END)
    if not last.endswith(MAGIC):
        raise StorageError("the file is cut off: it has no footer", where=path)
    length = int.from_bytes(last[:4], "little")
    return _read(stream, path, end - length, length)


def _read(stream: Any, path: str, at: int, size: int) -> bytes:
    with catalog_errors(path):
        found: bytes = stream.read(size) if at >= 0 and stream.seek(at) == at else b""
    if len(found) != size:
        raise StorageError(f"the file is cut off: it lacks bytes {at} to {at + size}", where=path)
    return found

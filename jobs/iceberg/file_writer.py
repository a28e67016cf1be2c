"""Writes the data files of one task: Parquet, rolled by size, one file per partition at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.types import BooleanType

from jobs.iceberg.conformed import conformed
from jobs.iceberg.new_files import NewFile, NewFiles
from jobs.iceberg.numbers import LEVEL, PARQUET, number
from jobs.iceberg.partitioning import Values, at, by_partition
from jobs.iceberg.statistics import column_statistics, modes
from jobs.schema.own_values import stored
from resources.iceberg_errors import catalog_errors

# Rows are buffered until they fill a row group: up to this size in Arrow's memory ...
GROUP_BYTES = 64 << 20
# ... or up to this number of rows, Iceberg's default limit.
_GROUP_ROWS = 1 << 20
# Rows without null are worth a row group of their own if they are of this size in Arrow's memory: smaller ones are not
# copied (`whole_groups`).
WORTH_A_GROUP = 8 << 20
# A file of a sorted table ends with the sorted row group that makes it at least this large: well-compressed groups
# would each become a small file.
SORTED_FILE_BYTES = 4 << 20
# With more open partitions, a task ends the file of the partition that it wrote to least recently.
_OPEN_PARTITIONS = 32
# zstd, Iceberg's default codec, is set up again for each column of each file, by readers too, which costs as much as
# hundreds of rows. Where no level is set, files below this size in Arrow's memory get another.
_SMALL_BYTES = 1 << 20
_OF_SMALL = "snappy"
_WITHOUT_LEVELS = ("snappy", "uncompressed", "none")
# Before the name of a column that gets a bloom filter.
BLOOM = PARQUET + "bloom-filter-enabled.column."
# How values are stored.
FORM = {"store_decimal_as_integer": True, "store_schema": False}
# Columns whose values mostly differ get no dictionary, which would cost time and space; decided by the first rows.
_LOOKED_AT = 10_000


class Writer(Protocol):
    """Writes the files of one task."""

    def close(self) -> None:
        """Completes the open files."""

    def abandon(self) -> None:
        """Leaves the open files incomplete."""


W = TypeVar("W", bound=Writer)


@contextmanager
def completed(writer: W, where: str) -> Iterator[W]:
    """A writer whose files are complete when the context ends. What an exception leaves in the storage belongs to no
    table."""
    with catalog_errors(where):
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise
        writer.close()


def writing(files: NewFiles) -> AbstractContextManager[FileWriter]:
    """Writes the files of one task (`completed`)."""
    return completed(FileWriter(files), files.where)


class FileWriter:
    """Writes the files of one task (`writing`).

    Attributes:
        written: the complete files.
    """

    def __init__(self, files: NewFiles) -> None:
        self._files = files
        self._open: dict[Values, _OpenFile] = {}
        self.written: list[NewFile] = []

    def write(self, columns: Mapping[str, pa.Array]) -> None:
        """Adds rows (`conformed`).

        Raises:
            SchemaRefused: a column cannot hold one of its values.
        """
        rows = conformed(columns, self._files.arrow_schema, self._files.where)
        if not len(rows):
            return
        for partition, part in by_partition(rows, self._files.spec, self._files.schema):
            file = self._open.pop(partition, None) or _OpenFile(self._files, partition)
            file.add(part)
            if file.is_large:
                self.written += file.close()
            else:
                self._open[partition] = file
        while len(self._open) > _OPEN_PARTITIONS:
            self.written += self._open.pop(next(iter(self._open))).close()

    def close(self) -> None:
        """Completes the open files."""
        for file in self._open.values():
            self.written += file.close()

    def abandon(self) -> None:
        """Leaves the open files incomplete."""
        for file in self._open.values():
            file.abandon()


class _OpenFile:
    """One Parquet file that rows are added to; created with its first row group.

    It declares `NewFiles.full` as required. Rows with null there go into another file beside it: with one of them in a
    row group, none of the group's rows could be copied. So do all rows of small groups, which are not copied anyway.
    """

    def __init__(self, files: NewFiles, partition: Values) -> None:
        self._files, self._partition = files, partition
        self._path = files.new_path(partition)
        self._most = files.target_bytes
        self._enough = min(self._most, SORTED_FILE_BYTES) if files.sort else self._most
        self._waiting: list[pa.Table] = []
        self._bytes = self._rows = 0
        self._beside: _OpenFile | None = None
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None

    @property
    def is_large(self) -> bool:
        """Whether it is large enough, or the one beside it."""
        own = self._writer is not None and self._stream.tell() >= self._enough
        return own or (self._beside is not None and self._beside.is_large)

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        self._rows += len(rows)
        if self._bytes >= min(GROUP_BYTES, self._most) or self._rows >= _GROUP_ROWS:
            self._write_group()

    def close(self) -> list[NewFile]:
        """Completes the file, if any row is in it, and the one beside it."""
        if self._waiting:
            self._write_group()
        written = self._beside.close() if self._beside else []
        if self._writer is None:
            return written
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        return [described(self._files, self._path, size, self._writer.writer.metadata, self._partition), *written]

    def abandon(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._beside:
            self._beside.abandon()

    def _write_group(self) -> None:
        found, others = _divided(self._waiting, self._files.full)
        self._waiting, self._bytes, self._rows = [], 0, 0
        if others:
            self._beside = self._beside or _OpenFile(replace(self._files, full=frozenset()), self._partition)
            self._beside.add(pa.concat_tables(others))
        if not found:
            return
        rows = pa.concat_tables(found)
        if self._files.sort:
            rows = _sorted(rows, self._files.sort)
        schema = _required(self._files.arrow_schema, self._files.full)
        if self._writer is None:
            self._stream = self._files.storage.new_output(self._path).create()
            self._writer = pq.ParquetWriter(self._stream, schema, **_options(self._files, rows))
        most = number(self._files.properties, PARQUET + "row-group-limit")
        self._writer.write_table(rows.cast(schema), row_group_size=most)


def described(files: NewFiles, path: str, size: int, footer: pq.FileMetaData, partition: Values = ()) -> NewFile:
    """A file that was written, as its footer describes it."""
    return NewFile(
        path,
        footer.num_rows,
        size,
        partition,
        column_statistics(footer, files.leaves, modes(files.leaves, files.properties)),
        tuple(_begin(footer.row_group(n).column(0)) for n in range(footer.num_row_groups)),
    )


def _divided(
    parts: Sequence[pa.Table], full: Collection[tuple[str, ...]]
) -> tuple[Sequence[pa.Table], Sequence[pa.Table]]:
    """The rows that have values at all these paths, and the others; all are others if those are not worth it."""
    found, others = list[pa.Table](), list[pa.Table]()
    for rows in parts:
        values = [column for column in (_at(rows, path) for path in full) if column.null_count]
        is_full = reduce(pc.and_, map(pc.is_valid, values)) if values else None
        found.append(rows if is_full is None else rows.filter(is_full))
        if is_full is not None:
            others.append(rows.filter(pc.invert(is_full)))
    is_worth_it = not others or sum(rows.nbytes for rows in found) >= WORTH_A_GROUP
    return (found, others) if is_worth_it else ((), parts)


def _at(rows: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """The column, or the field of one, at this path."""
    name, *below = path
    return pc.struct_field(rows[name], below) if below else rows[name]


def _required(schema: pa.Schema, full: Collection[tuple[str, ...]]) -> pa.Schema:
    """The schema with what is at these paths as required."""

    def of(field: pa.Field, path: tuple[str, ...]) -> pa.Field:
        if path not in full:
            return field
        inside = pa.types.is_struct(field.type)
        kind = pa.struct([of(child, (*path, child.name)) for child in field.type]) if inside else field.type
        return field.with_type(kind).with_nullable(False)

    return pa.schema([of(field, (field.name,)) for field in schema])


def _options(files: NewFiles, rows: pa.Table) -> dict[str, Any]:
    """Parquet's options by the table's properties, with Iceberg's defaults."""
    codec = files.properties.get(PARQUET + "compression-codec", "zstd").lower()
    level = files.properties.get(LEVEL, "null")
    if codec == "zstd" and level == "null" and rows.nbytes < _SMALL_BYTES:
        codec = _OF_SMALL
    wanted = [c for c in files.leaves if files.properties.get(BLOOM + c.name, "").lower() == "true"]
    blooms = [c.path for c in wanted if not isinstance(c.type, BooleanType)]  # Parquet has none for these
    return {
        "compression": "none" if codec == "uncompressed" else codec,
        "compression_level": None if level == "null" or codec in _WITHOUT_LEVELS else int(level),
        "data_page_size": number(files.properties, PARQUET + "page-size-bytes"),
        "dictionary_pagesize_limit": number(files.properties, PARQUET + "dict-size-bytes"),
        "max_rows_per_page": number(files.properties, PARQUET + "page-row-limit"),
        **FORM,
        "use_dictionary": [c.path for c in files.leaves if c.repeated or _repeats(rows, c.parts)],
        **({"bloom_filter_options": {path: {"ndv": len(rows)} for path in blooms}} if blooms else {}),
    }


def _repeats(rows: pa.Table, parts: Sequence[str]) -> bool:
    values = stored(_at(rows.slice(0, _LOOKED_AT), parts))
    distinct: int = pc.count_distinct(values, mode="all").as_py()
    return distinct * 2 <= len(values)


def _sorted(rows: pa.Table, sort: Sequence[tuple[str, str, str]]) -> pa.Table:
    keys = pa.table([at(rows, name) for name, _, _ in sort], names=[str(n) for n in range(len(sort))])
    order = [(str(n), direction, nulls) for n, (_, direction, nulls) in enumerate(sort)]
    return rows.take(pc.sort_indices(keys, sort_keys=order))


def _begin(chunk: Any) -> int:
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    return int(min(chunk.data_page_offset, dictionary or chunk.data_page_offset))

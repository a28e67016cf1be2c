"""One data file of the intermediate table, read as plain Parquet: only row groups that may hold wanted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from jobs.iceberg.file_writer import GROUP_BYTES
from jobs.iceberg.statistics import Bounds, bounds_of, group_bounds
from jobs.offsets import Ranges

_BOUNDED = ("batchNumber", "kafka.partition", "kafka.offset", "i")
# How many times as large rows usually are in memory as in a file, at most.
_UNPACKED = 20
# Files of at most this size in bytes are read by one request, and not by one a column.
_AT_ONCE = 1 << 20
# Text columns with few values: read as dictionaries. (pyarrow cannot do so inside a struct over several row groups.)
_FEW = ("op",)


@dataclass(frozen=True)
class LandedFile:
    """A file as its manifest describes it.

    Attributes:
        size: in bytes.
        starts: where each row group begins, in bytes.
        bounds: of the columns `_BOUNDED`.
        group: only this row group is meant; None: all.
    """

    path: str
    rows: int
    size: int
    starts: Sequence[int]
    bounds: Sequence[Bounds]
    group: int | None = None

    @classmethod
    def of(cls, file: DataFile, schema: Schema) -> LandedFile:
        bounds = tuple(bounds_of(file, schema.find_field(name)) for name in _BOUNDED)
        starts = tuple(file.split_offsets or [0])
        return cls(file.file_path, file.record_count, file.file_size_in_bytes, starts, bounds)

    @property
    def place(self) -> tuple[int, int]:
        """Batch and `i` of its first row."""
        return tuple(bound[0] if bound else 0 for bound in (self.bounds[0], self.bounds[3]))  # type: ignore[return-value]

    @property
    def memory(self) -> int:
        """An estimate of what its rows take in memory, in bytes. All row groups but the last one are full.

        There is no most for a row group: compaction ends one by its size in the file.
        """
        return max(self.size * _UNPACKED, (len(self.starts) - 1) * GROUP_BYTES)

    def portions(self, rows: int, memory: int) -> list[LandedFile]:
        """One portion a row group if the file has more rows than that, or takes more memory; else the file itself."""
        return [self] if self.rows <= rows and self.memory <= memory else self.row_groups

    @property
    def row_groups(self) -> list[LandedFile]:
        """One portion a row group; its rows are an estimate by its size. The file itself if it has one."""
        if len(self.starts) <= 1:
            return [self]
        sizes = [end - start for start, end in pairwise((*self.starts, self.size))]
        return [
            replace(self, rows=self.rows * size // sum(sizes), size=size, starts=self.starts[n : n + 1], group=n)
            for n, size in enumerate(sizes)
        ]

    def may_hold(self, first: int, last: int, part: Ranges | None) -> bool:
        """Whether the file may hold rows of these batches; with `part` only rows of these offsets count."""
        batches, partitions, offsets, _ = self.bounds
        if not overlap(batches, first, last):
            return False
        return part is None or any(
            overlap(partitions, tp.partition, tp.partition) and overlap(offsets, r.start, r.end - 1)
            for tp, r in part.items()
        )

    def fetched(self, storage: FileIO) -> bytes | None:
        """All of a small file; None: it is a large one."""
        if self.group is not None or self.size > _AT_ONCE:
            return None
        with storage.new_input(self.path).open() as source:
            return source.read(self.size)

    def read(
        self,
        storage: FileIO,
        fetched: bytes | None,
        columns: Sequence[str],
        first: int,
        last: int,
        part: Ranges | None,
    ) -> list[pa.Table]:
        """The rows of each row group, without groups that hold no wanted row.

        Not of all in one: an array of texts has room for 2 GB.

        Args:
            fetched: what `fetched` gave.
            columns: to read; those that the file lacks are left out.
        """
        source: Any = pa.BufferReader(fetched) if fetched else storage.new_input(self.path).open()
        with source, pq.ParquetFile(source, read_dictionary=_FEW) as file:
            groups = range(file.num_row_groups) if self.group is None else [self.group]
            if len(groups) > 1:
                bounds = ((n, group_bounds(file, n, _BOUNDED)) for n in groups)
                groups = [n for n, own in bounds if replace(self, bounds=own).may_hold(first, last, part)]
            return [file.read_row_group(n, columns=columns, use_threads=False) for n in groups]


def overlap(bounds: Bounds, first: int, last: int) -> bool:
    """Whether a value from first to last may be within the bounds; None: they are not known."""
    return bounds is None or (bounds[0] <= last and first <= bounds[1])

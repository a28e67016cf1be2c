"""The landed files of many batches, planned once, and read by workers as the plain Parquet files that they are.

A scan through Iceberg reads the table's metadata and plans at every worker and for every piece, which grows with the
number of snapshots. Here the caller plans once; each reader opens only files that may hold its rows. Where files have
other columns than the table has now, or deletes beside them, rows are read through Iceberg after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression, Or
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable

from jobs.batch import LandedBatch
from jobs.changes.columns import REVISION
from jobs.changes.files import FIELDS, LandedFiles, LandedSlice, of_batches, of_partition
from jobs.iceberg.attempt import added_files
from jobs.offsets import OffsetRange, TopicPartition
from resources.iceberg_errors import catalog_errors

# Opening small files one after another would wait for the storage most of the time.
_THREADS = 8
# Of more batches the table's manifests are read, instead of a list of them for each batch.
_FEW = 16
# Rows that are read at a time where they are streamed.
_ROWS = 100_000
# What rows are chosen by, beside offsets.
_CHOSEN_BY = (("op",), ("i",), ("batchNumber",), ("kafka", "topic"), (REVISION.name,))
_BOUNDED = ("batchNumber", "kafka.partition", "kafka.offset", "i")

Ranges = Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True)
class LandedFile:
    """One data file, with the smallest and largest value of `_BOUNDED` in it; None where that is not known."""

    path: str
    bounds: tuple[tuple[int, int] | None, ...]

    def may_hold(self, first: int, last: int, part: Ranges | None) -> bool:
        if not _overlap(self.bounds[0], first, last):
            return False
        return part is None or any(
            _overlap(self.bounds[1], tp.partition, tp.partition) and _overlap(self.bounds[2], r.start, r.end - 1)
            for tp, r in part.items()
        )

    @property
    def place(self) -> tuple[int, int]:
        """Where its first row stands."""
        return tuple(bound[0] if bound else 0 for bound in (self.bounds[0], self.bounds[3]))  # type: ignore[return-value]


@dataclass(frozen=True)
class PlannedFiles:
    """The files of some batches; travels to Spark's workers.

    Attributes:
        files: in the order of their rows; None: they are to be read through Iceberg.
    """

    landed: LandedFiles
    files: tuple[LandedFile, ...] | None

    @classmethod
    def of(cls, landed: LandedFiles, batches: Sequence[LandedBatch]) -> PlannedFiles:
        """Plans the files of adjoining batches.

        Raises:
            StorageError, Unavailable: the manifests cannot be read.
        """
        with catalog_errors(landed.identifier):
            table = landed.table()
            schemas = {s.snapshot_id: s.schema_id for s in table.metadata.snapshots}
            if {schemas.get(b.snapshot_id) for b in batches} != {schemas.get(landed.snapshot)}:
                return cls(landed, None)
            files = _of_snapshots(landed, table, batches)
            files = _of_scan(landed, table, batches) if files is None else files
            schema = table.schema()
        if files is None:
            return cls(landed, None)
        found = [LandedFile(file.file_path, tuple(_bounds(file, schema))) for file in files]
        return cls(landed, tuple(sorted(found, key=lambda file: file.place)))

    def read(self, first: int, last: int, part: Ranges | None = None) -> LandedSlice:
        """The rows of these batches, ordered by batch and position; with `part` only those of these offsets.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        if self.files is None:
            return self.landed.read(_filter(first, last, part))
        paths = [file.path for file in self.files if file.may_hold(first, last, part)]
        if not paths:
            return self.landed.read(AlwaysFalse())
        with catalog_errors(self.landed.identifier), ThreadPoolExecutor(_THREADS) as threads:
            # One client of the storage for all of them.
            storage = load_file_io(dict(self.landed.storage), paths[0])
            rows = pa.concat_tables(threads.map(partial(_read, storage), paths), promote_options="permissive")
        return self._chosen(rows, first, last, part).in_order()

    def stream(
        self, first: int, last: int, paths: Iterable[tuple[str, ...]], number: int, of: int
    ) -> Iterator[LandedSlice]:
        """What is at these paths of the same rows, of each `of`th file from the one of this number on; some rows at a
        time, in no order. Only where files are planned.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        route = self.landed.route
        wanted = [file.path for file in self.files or () if file.may_hold(first, last, None)][number::of]
        columns = {*paths, *_CHOSEN_BY, *([route.path] if route and route.path else [])}
        with catalog_errors(self.landed.identifier):
            for path in wanted:
                storage = load_file_io(dict(self.landed.storage), path)
                with storage.new_input(path).open() as source, pq.ParquetFile(source) as file:
                    present = [".".join(c) for c in sorted(columns) if c[0] in file.schema_arrow.names]
                    for rows in file.iter_batches(_ROWS, columns=present, use_threads=False):
                        yield self._chosen(pa.table(rows), first, last, None)

    def _chosen(self, rows: pa.Table, first: int, last: int, part: Ranges | None) -> LandedSlice:
        wanted = self._mask(rows, first, last, part)
        if not pc.all(wanted).as_py():
            rows = rows.filter(wanted)
        whole = {name: rows[name].combine_chunks() for name in rows.column_names if name in FIELDS}
        return LandedSlice(whole).route_filter(self.landed.route)

    def _mask(self, rows: pa.Table, first: int, last: int, part: Ranges | None) -> pa.ChunkedArray:
        # A dead letter has no operation.
        wanted = pc.is_in(rows["op"], value_set=pa.array(self.landed.operations))
        revision = self.landed.revision
        if revision is not None:
            wanted = pc.and_(wanted, pc.fill_null(pc.equal(rows[REVISION.name], revision), False))
        elif REVISION.name in rows.column_names:
            wanted = pc.and_(wanted, pc.is_null(rows[REVISION.name]))
        batches = rows["batchNumber"]
        wanted = pc.and_(wanted, pc.and_(pc.greater_equal(batches, first), pc.less_equal(batches, last)))
        return pc.and_(wanted, _in_part(rows["kafka"], part)) if part is not None else wanted


def _of_snapshots(landed: LandedFiles, table: StaticTable, batches: Sequence[LandedBatch]) -> list[DataFile] | None:
    """Of a few batches what their own snapshots added: a scan would read the manifests of all that were ever landed.

    None where that is not all that was landed.
    """
    if landed.revision is not None or len(batches) > _FEW:
        return None
    if any(m.content == ManifestContent.DELETES for m in _manifests(table, batches[-1].snapshot_id)):
        return None
    files = [file for batch in batches for file in added_files(table, batch.snapshot_id)]
    whole = sum(file.record_count for file in files) == sum(b.counts.landed + b.counts.quarantined for b in batches)
    return files if whole and all(file.file_format == FileFormat.PARQUET for file in files) else None


def _of_scan(landed: LandedFiles, table: StaticTable, batches: Sequence[LandedBatch]) -> list[DataFile] | None:
    """None where they are not all Parquet files without deletes."""
    by_place = landed.revision is None
    wanted = of_batches(batches[0].number, batches[-1].number) if by_place else AlwaysTrue()
    tasks = list(landed.scan(table, wanted, ("i",)).plan_files())
    if any(task.delete_files or task.file.file_format != FileFormat.PARQUET for task in tasks):
        return None
    return [task.file for task in tasks]


def _manifests(table: StaticTable, snapshot_id: int) -> list[ManifestFile]:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    return snapshot.manifests(table.io) if snapshot else []


def _read(storage: FileIO, path: str) -> pa.Table:
    with storage.new_input(path).open() as source, pq.ParquetFile(source) as file:
        names = set(file.schema_arrow.names)
        return file.read(columns=[name for name in (*FIELDS, REVISION.name) if name in names], use_threads=False)


def _in_part(kafka: pa.ChunkedArray, part: Ranges) -> pa.ChunkedArray:
    topics, partitions, offsets = (pc.struct_field(kafka, [name]) for name in ("topic", "partition", "offset"))
    found = pa.chunked_array([pa.repeat(False, len(kafka))])
    for tp, taken in part.items():
        here = pc.and_(pc.equal(topics, tp.topic), pc.equal(partitions, tp.partition))
        within = pc.and_(pc.greater_equal(offsets, taken.start), pc.less(offsets, taken.end))
        found = pc.or_(found, pc.and_(here, within))
    return found


def _bounds(file: DataFile, schema: Schema) -> Iterator[tuple[int, int] | None]:
    low, high = file.lower_bounds or {}, file.upper_bounds or {}
    for name in _BOUNDED:
        field = schema.find_field(name)
        known = field.field_id in low and field.field_id in high
        kind: Any = field.field_type
        found: Any = [from_bytes(kind, bound[field.field_id]) for bound in (low, high)] if known else None
        yield found and tuple(found)


def _overlap(bounds: tuple[int, int] | None, first: int, last: int) -> bool:
    return bounds is None or (bounds[0] <= last and first <= bounds[1])


def _filter(first: int, last: int, part: Ranges | None) -> BooleanExpression:
    if part is None:
        return of_batches(first, last)
    pieces = [of_partition(first, last, tp, taken) for tp, taken in part.items()]
    return Or(*pieces) if len(pieces) > 1 else pieces[0]

"""The landed files of many batches, planned once, and read by workers as plain Parquet.

A scan through Iceberg reads the table's metadata and plans in every worker and for every piece, which costs more with
every snapshot. Here the caller plans once; each reader opens only files that may hold its rows. If files have other
columns than the table has now, or delete files, rows are read through Iceberg after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression, Or
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.table import Table

from jobs.batch import LandedBatch
from jobs.changes.columns import REVISION
from jobs.changes.files import FIELDS, LandedFiles, LandedSlice, of_batches, of_partition, whole_array
from jobs.changes.landed_file import LandedFile, overlap
from jobs.groups import balanced, filled, groups
from jobs.iceberg.attempt import added_files
from jobs.iceberg.staging import live_files
from jobs.iceberg.statistics import bounds_of
from jobs.offsets import Ranges
from resources.iceberg_errors import catalog_errors

# Fetching small files one after another would wait for the storage most of the time.
_THREADS = 8
# Small files are read together up to this many rows, and about this many bytes in memory: an array of texts has room
# for 2 GB. Larger files are read by row group.
_PIECE_ROWS = 250_000
_PIECE_BYTES = 512 << 20
# Above this many batches the table's manifests are read, instead of those that each batch's snapshot added.
_FEW = 16
# Columns by which rows are selected and ordered.
_CHOSEN_BY = (("op",), ("i",), ("batchNumber",), (REVISION.name,))
_COORDINATES = (("kafka", "topic"), ("kafka", "partition"), ("kafka", "offset"))


@dataclass(frozen=True)
class PlannedFiles:
    """The files of some batches; travels to Spark's workers.

    Attributes:
        files: in the order of their rows; None: rows have to be read through Iceberg.
        paths: of the columns to read (`LandedSlice.at`); None: all.
    """

    landed: LandedFiles
    files: tuple[LandedFile, ...] | None
    paths: frozenset[tuple[str, ...]] | None = None

    @classmethod
    def of(
        cls,
        landed: LandedFiles,
        batches: Sequence[LandedBatch],
        paths: Iterable[tuple[str, ...]] | None = None,
    ) -> PlannedFiles:
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
            files = _of_entries(landed, table, batches) if files is None else files
            files = _of_scan(landed, table, batches) if files is None else files
            schema = table.schema()
        if files is None or any(file.file_format != FileFormat.PARQUET for file in files):
            return cls(landed, None)
        found = [LandedFile.of(file, schema) for file in files]
        wanted_paths = None if paths is None else frozenset(paths)
        return cls(landed, tuple(sorted(found, key=lambda file: file.place)), wanted_paths)

    @property
    def bytes(self) -> int | None:
        """The files' total size; None if it is not known."""
        return None if self.files is None else sum(file.size for file in self.files)

    @property
    def memory(self) -> int:
        """An estimate of what all rows take in memory, in bytes."""
        return sum(file.memory for file in self.files or ())

    def holding_only(self, batches: Sequence[LandedBatch]) -> tuple[LandedFile, ...]:
        """The files if they hold the landed rows of these batches and nothing else; else none."""
        files = self.files or ()
        is_whole = sum(file.rows for file in files) == sum(batch.counts.landed for batch in batches)
        return files if is_whole else ()

    def read(self, first: int, last: int, part: Ranges | None = None) -> LandedSlice:
        """The rows of these batches, ordered by batch and position; with `part` only those of these offsets.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        if self.files is None:
            return self.landed.read(_filter(first, last, part))
        read = self._read([file for file in self.files if file.may_hold(first, last, part)], first, last, part)
        if not read:
            return self.landed.read(AlwaysFalse())
        return self._chosen(read, first, last, part).in_order()

    def in_pieces(self, first: int, last: int) -> Iterator[LandedSlice]:
        """All rows of these batches, in pieces of bounded size, so that memory is bounded; in no order.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        if self.files is None:
            yield from self.landed.in_pieces(of_batches(first, last), _PIECE_ROWS, _PIECE_BYTES)
            return
        portions = (one for one in self._portions if one.may_hold(first, last, None))
        # What is read at a time can only be estimated; a piece is what was really read.
        at_a_time = groups(portions, lambda file: _filled(file.rows, file.memory), 1)
        read = (table for files in at_a_time for table in self._read(files, first, last, None))
        for tables in groups(read, lambda table: _filled(table.num_rows, table.nbytes), 1):
            yield self._chosen(tables, first, last, None)

    def share(self, number: int, of: int) -> PlannedFiles:
        """Share `number` of the files, of `of` shares of about the same size. Rows that are read through Iceberg are
        all in share 0."""
        if self.files is None:
            return self if number == 0 else replace(self, files=())
        return self.of_files(balanced(self._portions, lambda file: file.size, of)[number])

    def of_files(self, files: Iterable[LandedFile]) -> PlannedFiles:
        """Some of the files."""
        return replace(self, files=tuple(files))

    @property
    def most_shares(self) -> int:
        """The largest number of shares of which none is empty."""
        return max(1, len(self._portions))

    @property
    def _portions(self) -> tuple[LandedFile, ...]:
        return tuple(portion for file in self.files or () for portion in file.portions(_PIECE_ROWS, _PIECE_BYTES))

    def _read(self, files: Sequence[LandedFile], first: int, last: int, part: Ranges | None) -> list[pa.Table]:
        """The rows of each row group."""
        columns, storage = self._columns(part), self.landed.storage

        def rows(file: LandedFile, fetched: bytes | None) -> list[pa.Table]:
            return file.read(storage, fetched, columns, first, last, part)

        def begun(file: LandedFile) -> bytes | list[pa.Table]:
            """All of a small file, or the rows of a large one."""
            return file.fetched(storage) or rows(file, None)

        with catalog_errors(self.landed.identifier), ThreadPoolExecutor(_THREADS) as threads:
            # Small files are decoded in this thread: several would wait for each other most of the time.
            done = zip(files, threads.map(begun, files), strict=True)
            read = (rows(file, one) if isinstance(one, bytes) else one for file, one in done)
            return [table for tables in read for table in tables]

    def _chosen(self, read: Sequence[pa.Table], first: int, last: int, part: Ranges | None) -> LandedSlice:
        rows = pa.concat_tables(read, promote_options="permissive")
        wanted = self._mask(rows, first, last, part)
        if not pc.all(wanted).as_py():
            rows = rows.filter(wanted)
        own = rows.select([name for name in rows.column_names if name in FIELDS])
        return LandedSlice.of(own).routed_by(self.landed.route)

    def _columns(self, part: Ranges | None) -> list[str]:
        """The columns to read from the files, by dotted path: whole structs, or fields of them."""
        if self.paths is None:
            return [*FIELDS, REVISION.name]
        route = self.landed.route
        coordinates = _COORDINATES if part or route else ()
        paths = {*self.paths, *_CHOSEN_BY, *coordinates, *([route.path] if route and route.path else [])}
        return [".".join(path) for path in sorted(paths)]

    def _mask(self, rows: pa.Table, first: int, last: int, part: Ranges | None) -> pa.ChunkedArray:
        # A dead letter has no operation.
        wanted = pc.is_in(rows["op"], value_set=pa.array(self.landed.operations))
        own, revision = rows[REVISION.name], self.landed.revision
        wanted = pc.and_(wanted, pc.is_null(own) if revision is None else pc.fill_null(pc.equal(own, revision), False))
        batches = rows["batchNumber"]
        wanted = pc.and_(wanted, pc.and_(pc.greater_equal(batches, first), pc.less_equal(batches, last)))
        return pc.and_(wanted, _in_part(rows["kafka"], part)) if part is not None else wanted


def _filled(rows: int, memory: int) -> float:
    return filled(rows, memory, _PIECE_ROWS, _PIECE_BYTES)


def _of_snapshots(landed: LandedFiles, table: Table, batches: Sequence[LandedBatch]) -> list[DataFile] | None:
    """What the batches' own snapshots added; a scan would read the manifests of all batches that were ever landed.

    None if there are too many batches, or if these files are not exactly what they landed.
    """
    if landed.revision is not None or len(batches) > _FEW or _has_deletes(table, batches[-1].snapshot_id):
        return None
    files = [file for batch in batches for file in added_files(table, batch.snapshot_id)]
    whole = sum(file.record_count for file in files) == sum(b.counts.landed + b.counts.quarantined for b in batches)
    return files if whole else None


def _of_entries(landed: LandedFiles, table: Table, batches: Sequence[LandedBatch]) -> list[DataFile] | None:
    """The files that may hold rows of the batches, by their bounds: a scan looks at other columns too, which costs more
    than reading the manifests. None if only a scan can tell."""
    if landed.revision is not None or _has_deletes(table, landed.snapshot):
        return None
    number, first, last = table.schema().find_field("batchNumber"), batches[0].number, batches[-1].number
    live = live_files(table, landed.snapshot, ManifestContent.DATA)
    return [file for file in live if overlap(bounds_of(file, number), first, last)]


def _of_scan(landed: LandedFiles, table: Table, batches: Sequence[LandedBatch]) -> list[DataFile] | None:
    """The files that a scan plans; None if some have delete files."""
    by_place = landed.revision is None
    wanted = of_batches(batches[0].number, batches[-1].number) if by_place else AlwaysTrue()
    tasks = list(landed.scan(table, wanted, ("i",)).plan_files())
    return None if any(task.delete_files for task in tasks) else [task.file for task in tasks]


def _has_deletes(table: Table, snapshot_id: int) -> bool:
    """Whether the snapshot has delete files."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    manifests = snapshot.manifests(table.io) if snapshot else []
    return any(manifest.content == ManifestContent.DELETES for manifest in manifests)


def _in_part(kafka: pa.ChunkedArray, part: Ranges) -> pa.Array:
    """Which rows are in these ranges; as fast for thousands of topic-partitions as for one."""
    whole = whole_array(kafka)
    topics = pc.struct_field(whole, ["topic"]).dictionary_encode()
    partitions, offsets = (pc.struct_field(whole, [name]).to_numpy() for name in ("partition", "offset"))
    numbers = {topic: n for n, topic in enumerate(sorted({tp.topic for tp in part}))}
    # A topic-partition as one integer: the topic's number in the upper 32 bits, the partition in the lower.
    places = np.array([numbers.get(topic, -1) for topic in topics.dictionary.to_pylist()], np.int64)
    rows = places[topics.indices.to_numpy()] << 32 | partitions
    known = sorted((numbers[tp.topic] << 32 | tp.partition, taken.start, taken.end) for tp, taken in part.items())
    wanted, starts, ends = np.array(known, np.int64).reshape(-1, 3).T
    at = np.searchsorted(wanted, rows).clip(max=len(wanted) - 1)
    return pa.array((wanted[at] == rows) & (offsets >= starts[at]) & (offsets < ends[at]))


def _filter(first: int, last: int, part: Ranges | None) -> BooleanExpression:
    if part is None:
        return of_batches(first, last)
    pieces = [of_partition(first, last, tp, taken) for tp, taken in part.items()]
    return Or(*pieces) if len(pieces) > 1 else pieces[0]

"""Finds the rows of some keys in a table's data files: reads key columns only, pruned by statistics.

The run makes the search, since it knows the commit's base; tasks narrow it, since they know the keys. Scanning ten
million integers takes a third of a second of one core, a fifth of what a join costs. It supports Parquet files with
field ids, and delete files of a single data file; other tables are left to Spark SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from jobs.iceberg.conformed import conformed
from jobs.iceberg.keys import Keys
from jobs.iceberg.position_deletes import BaseFile, Positions, deleted_positions
from jobs.iceberg.statistics import Bounds, bounds_of, group_bounds
from jobs.schema.own_values import as_landed, stored, stored_type
from jobs.schema.types import as_integers, landed_type
from jobs.spark.spark_tasks import Batches
from resources.iceberg_errors import catalog_errors

SHARE = "__bm_share"
FILE, POSITION = "_file", "_pos"
_FIELD_ID = b"PARQUET:field_id"
_THREADS = 4


@dataclass(frozen=True)
class KeySearch:
    """The files to search for rows; travels to Spark's workers.

    Attributes:
        where: the table, for errors.
        columns: of the key, then others to read of each row: Arrow fields with Iceberg's field ids.
        files: each with the bounds of the key's columns as in Iceberg's metadata.
        storage: the client of the table's file system. May hold secrets: never log it.
    """

    where: str
    columns: pa.Schema
    files: Sequence[tuple[BaseFile, Sequence[Bounds]]]
    storage: FileIO = field(repr=False)

    @property
    def found(self) -> pa.Schema:
        """The schema of the rows that the search finds, with values as files store them."""
        return self._with_places(stored_type)

    @property
    def landed(self) -> pa.Schema:
        """The same, with values as they are landed: for Spark."""
        return self._with_places(landed_type)

    def _with_places(self, of: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
        columns = [field.with_type(of(field.type)) for field in self.columns]
        return pa.schema([*columns, pa.field(FILE, pa.string()), pa.field(POSITION, pa.int64())])

    def as_landed(self, found: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that the search has found, as they are landed."""
        columns = [as_landed(found[field.name].cast(field.type)) for field in self.columns]
        return pa.RecordBatch.from_arrays([*columns, found[FILE], found[POSITION]], schema=self.landed)

    @property
    def file_rows(self) -> int:
        """How many rows the files have."""
        return sum(file.rows for file, _ in self.files)

    def between(self, ends: Mapping[str, tuple[str, str]]) -> KeySearch:
        """The search in only those files that may hold keys between these bounds, which are texts from Spark."""
        wanted = [_ends(self.columns.field(name).type, *texts) for name, texts in ends.items()]
        places = [self.columns.names.index(name) for name in ends]
        files = [
            (file, bounds)
            for file, bounds in self.files
            if all(_meet(bounds[place], end) for place, end in zip(places, wanted, strict=True))
        ]
        return replace(self, files=files)

    def in_shares(self, most: int) -> list[KeySearch]:
        """Divides the files among at most `most` searches."""
        return [replace(self, files=self.files[n::most]) for n in range(min(most, len(self.files)))]

    def scan_for(self, keys: pa.Table) -> KeyScan:
        """A scan of the files that may hold one of these keys."""
        own = pa.schema([pa.field(name, self.columns.field(name).type) for name in keys.column_names])
        given = {name: keys[name].combine_chunks() for name in own.names}
        known = conformed(given, own, self.where)
        wanted = Keys(pa.table([stored(column) for column in known.columns], names=own.names))
        files = [(file, bounds) for file, bounds in self.files if wanted.may_be_between(bounds)]
        return KeyScan(wanted, replace(self, files=files))


@dataclass(frozen=True)
class KeyScan:
    """Finds the rows of the keys that are not deleted.

    Attributes:
        search: in the files that may hold one of the keys.
    """

    keys: Keys
    search: KeySearch

    def batches(self) -> Iterator[pa.RecordBatch]:
        """One file at a time: for a task that runs beside others."""
        for file, _ in self.search.files:
            yield from self._scan(file)

    def rows(self) -> pa.Table:
        """Several files at a time: for a task that runs alone."""
        with ThreadPoolExecutor(_THREADS) as threads:
            parts = threads.map(lambda file: list(self._scan(file)), (file for file, _ in self.search.files))
            return pa.Table.from_batches([batch for part in parts for batch in part], self.search.found)

    def _scan(self, file: BaseFile) -> Iterator[pa.RecordBatch]:
        with catalog_errors(self.search.where), self.search.storage.new_input(file.path).open() as source:
            parquet = pq.ParquetFile(source)
            names = _names_by_id(parquet.schema_arrow, self.search.columns)
            gone: Positions | None = None
            start = 0
            for n in range(parquet.num_row_groups):
                group = parquet.metadata.row_group(n)
                rows = self._rows_of_group(parquet, n, names) if self._may_hold(parquet, n, names) else None
                if rows is not None:
                    places, columns = rows
                    gone = deleted_positions(self.search.storage, file) if gone is None else gone
                    alive = ~np.isin(places + start, gone, assume_unique=True)
                    position = pa.array((places + start)[alive])
                    kept = [column.filter(pa.array(alive)) for column in columns]
                    arrays = [*kept, pa.repeat(file.path, len(position)), position]
                    yield from pa.Table.from_arrays(arrays, schema=self.search.found).to_batches()
                start += group.num_rows

    def _rows_of_group(
        self, parquet: pq.ParquetFile, group: int, names: Mapping[int, str]
    ) -> tuple[npt.NDArray[np.int64], list[Any]] | None:
        found: list[Any] = []
        for part in (self.search.columns.names[: self._width], self.search.columns.names[self._width :]):
            fields = [self.search.columns.field(name) for name in part]
            present = [names[i] for f in fields if (i := _field_id(f)) in names]
            table = parquet.read_row_group(group, columns=present, use_threads=False) if present else None
            rows = parquet.metadata.row_group(group).num_rows
            columns = [_column(table, names.get(_field_id(f)), f, rows) for f in fields]
            if not found:
                places = self.keys.places_in(columns)
                if not len(places):
                    return None
            found += [column.take(pa.array(places)) for column in columns]
        return places, found

    def _may_hold(self, parquet: pq.ParquetFile, group: int, names: Mapping[int, str]) -> bool:
        keys = [names.get(_field_id(field), "") for field in list(self.search.columns)[: self._width]]
        return self.keys.may_be_between(group_bounds(parquet, group, keys))

    @property
    def _width(self) -> int:
        return len(self.keys.rows.column_names)


@dataclass(frozen=True)
class SearchTask:
    """The function of a task: all keys with the number of a share in, the rows of the keys in that share's files out.

    Attributes:
        shares: of the search, by number.
    """

    shares: Mapping[int, KeySearch]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if not found:
            return
        keys = pa.Table.from_batches(found)
        for number in keys[SHARE].unique().to_pylist():
            own = keys.filter(pc.equal(keys[SHARE], number)).drop_columns([SHARE])
            search = self.shares[number]
            yield from map(search.as_landed, search.scan_for(own).batches())


def with_bounds(
    data: Iterable[DataFile], base: Mapping[str, BaseFile], names: Sequence[str], schema: Schema
) -> list[tuple[BaseFile, Sequence[Bounds]]]:
    """The data files with the bounds of these columns; None for bounds that are not known."""
    fields = [schema.find_field(name) for name in names]
    return [(base[file.file_path], [bounds_of(file, one) for one in fields]) for file in data]


def can_be_searched(key: pa.Schema) -> bool:
    """Whether the search compares values of these types as SQL does: not floats, because of NaN and -0.0."""
    return not any(pa.types.is_floating(f.type) or pa.types.is_nested(f.type) for f in key)


def _ends(kind: pa.DataType, *texts: str) -> Bounds:
    """The bounds as Iceberg's metadata has them; None if Arrow reads the text in another way than Spark wrote it."""
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)):
        return None
    try:
        least, most = as_integers(pa.array(texts).cast(kind)).to_pylist()
    except pa.ArrowInvalid:
        return None  # a date that needs more than four digits for its year
    return least, most


def _meet(bounds: Bounds, ends: Bounds) -> bool:
    if bounds is None or ends is None or not isinstance(bounds[0], type(ends[0])):
        return True
    least, most = bounds
    return bool(least <= ends[1] and ends[0] <= most)


def _names_by_id(file: pa.Schema, wanted: pa.Schema) -> dict[int, str]:
    """The names of a file's columns by field id; files without ids are matched by name."""
    if not any(f.metadata and _FIELD_ID in f.metadata for f in file):
        return {_field_id(f): f.name for f in wanted if f.name in file.names}
    return {int(f.metadata[_FIELD_ID]): f.name for f in file if f.metadata and _FIELD_ID in f.metadata}


def _field_id(field: pa.Field) -> int:
    found: bytes = field.metadata[_FIELD_ID]
    return int(found)


def _column(table: pa.Table | None, name: str | None, field: pa.Field, rows: int) -> Any:
    """A column of a file as the table stores it; null if the file is older than the column."""
    if table is None or name is None:
        return pa.chunked_array([pa.nulls(rows, stored_type(field.type))])
    return stored(table[name]).cast(stored_type(field.type))

"""Which of a table's data files may hold some keys, by their statistics, and how they are scanned.

The run makes the search, since it knows the commit's base; tasks narrow it, since they know the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from jobs.iceberg.key_scan import Keys, KeyScan, found_by
from jobs.iceberg.position_deletes import BaseFile
from jobs.iceberg.statistics import Bounds, bounds_of
from jobs.schema.types import as_integers
from jobs.spark.spark_tasks import Batches
from resources.iceberg_errors import catalog_errors

SHARE = "__bm_share"


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
        """The schema of the rows that the search finds."""
        return found_by(self.columns)

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
        own = [pa.field(name, self.columns.field(name).type) for name in keys.column_names]
        wanted = Keys(keys.cast(pa.schema(own)))
        files = [file for file, bounds in self.files if wanted.may_be_between(bounds)]
        return KeyScan(self.where, wanted, self.columns, files, self.storage)


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
            search, own = self.shares[number], keys.filter(pc.equal(keys[SHARE], number)).drop_columns([SHARE])
            with catalog_errors(search.where):
                yield from search.scan_for(own).batches()


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

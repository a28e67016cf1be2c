"""Row groups of landed files of which a table takes every row: they are copied as they are (`jobs.iceberg.row_groups`).

Which they are, their statistics say. Small ones are not copied, so that the table's row groups are as large as readers
like them; nor does a table get them whose properties ask for other Parquet than the landed files are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO

from jobs.changes.columns import READINGS, REVISION
from jobs.changes.landed_file import LandedFile
from jobs.changes.planned_files import PlannedFiles
from jobs.iceberg.file_writer import BLOOM
from jobs.iceberg.new_files import NewFiles
from jobs.iceberg.numbers import PARQUET
from jobs.iceberg.row_groups import Columns, RowGroupWriter, Source

# The rows of a small row group, and its bytes. Iceberg's default for a full one are a million rows.
SMALL_ROWS, _SMALL_BYTES = 128 << 10, 8 << 20
# Properties that say nothing of files that we write.
_OF_SPARK = frozenset({PARQUET + "row-group-size-bytes"})


@dataclass(frozen=True)
class WholeGroups:
    """The rows that a table takes; travels to Spark's workers.

    Attributes:
        first, last: batches.
        operations: all of them; of these rows it takes every one.
        small: row groups of fewer rows are small.
    """

    first: int
    last: int
    operations: tuple[str, ...]
    small: int

    @classmethod
    def of(cls, landed: PlannedFiles, first: int, last: int, files: NewFiles) -> WholeGroups | None:
        """None if the table takes no row group whole, or asks for other Parquet."""
        found = landed.landed
        alike = _of_parquet(found.metadata.properties) == _of_parquet(files.properties)
        # They are of the landed file's columns, and are not copied.
        blooms = any(name.startswith(BLOOM) for name in files.properties)
        if not alike or blooms or found.route is not None or found.revision is not None:
            return None
        return cls(first, last, found.operations, SMALL_ROWS)

    def copy(self, storage: FileIO, files: Sequence[LandedFile], to: RowGroupWriter) -> list[LandedFile]:
        """Copies what can be copied; returns the other row groups.

        Raises:
            StorageError, Unavailable: a file cannot be read.
        """
        left, large = list[LandedFile](), defaultdict[str, list[LandedFile]](list)
        for group in (group for file in files for group in file.row_groups):
            if self._is_small(group.rows, group.size):
                left.append(group)
            else:
                large[group.path].append(group)
        for path, groups in large.items():
            with Source.opened(storage, path) as source:
                columns = to.columns_in(source)
                for group in groups:
                    number = _number(group, source)
                    if columns is not None and number is not None and self._takes(source, number, columns):
                        to.copy(source, number, columns)
                    else:
                        left.append(group)
        return left

    def _is_small(self, rows: int, size: int) -> bool:
        return rows < self.small and size < _SMALL_BYTES

    def _takes(self, source: Source, group: int, columns: Columns) -> bool:
        """Whether the table takes a row group: every row, and enough of them in its columns."""
        is_small = self._is_small(source.rows(group), source.size(group, columns))
        return not is_small and self._takes_all(source, group)

    def _takes_all(self, source: Source, group: int) -> bool:
        """Whether the table takes every row of a row group."""
        batches, operations = (source.bounds(group, (name,)) for name in ("batchNumber", "op"))
        if batches is None or operations is None or source.nulls(group, ("op",)) != 0:
            return False
        first, last = (int.from_bytes(bound, "little", signed=True) for bound in batches)
        between = {name for name in READINGS if operations[0] <= name.encode() <= operations[1]}
        return self.first <= first and last <= self.last and between <= {*self.operations} and _read_once(source, group)


def _of_parquet(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties by which we write Parquet, with Iceberg's usual codec."""
    own = {n: value for n, value in properties.items() if n.startswith(PARQUET) and n not in _OF_SPARK}
    return {PARQUET + "compression-codec": "zstd", **own}


def _number(group: LandedFile, source: Source) -> int | None:
    """Of a row group in its file; None: the file has others than its manifest says."""
    count = len(source.groups)
    if group.group is None:
        return 0 if count == 1 else None
    return group.group if group.group < count else None


def _read_once(source: Source, group: int) -> bool:
    """Whether no record in the group was read again. Older files lack the column."""
    column = (REVISION.name,)
    return source.at(column) is None or source.nulls(group, column) == source.rows(group)

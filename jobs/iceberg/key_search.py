"""Which of a table's data files may hold some keys, by their statistics, and how those are looked through.

It is made where the commit's base is known, and narrowed where the keys are: in the run, or in a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from jobs.iceberg.key_scan import Keys, KeyScan
from jobs.iceberg.position_deletes import BaseFile
from jobs.iceberg.statistics import bounds_of

Bounds = tuple[Any, Any] | None


@dataclass(frozen=True)
class KeySearch:
    """What rows are looked for in; travels to Spark's workers.

    Attributes:
        where: the table, for errors.
        columns: of the key, then what else is asked of each row, by Arrow's field with Iceberg's field id.
        files: each with the smallest and largest value of the key's columns, as Iceberg's metadata has them.
        storage: its client of the file system. May hold secrets: never log it.
    """

    where: str
    columns: pa.Schema
    files: Sequence[tuple[BaseFile, Sequence[Bounds]]]
    storage: FileIO = field(repr=False)

    def scan_for(self, keys: pa.Table, tasks: int = 1) -> KeyScan:
        """The search in the files that may hold one of these keys, in so many shares at most."""
        own = [pa.field(name, self.columns.field(name).type) for name in keys.column_names]
        wanted = Keys(keys.cast(pa.schema(own)))
        files = [file for file, bounds in self.files if wanted.may_be_between(bounds)]
        shares = [files[n::tasks] for n in range(min(tasks, len(files)))]
        return KeyScan(self.where, wanted, self.columns, shares, self.storage)


def with_bounds(
    data: Iterable[DataFile], base: Mapping[str, BaseFile], names: Sequence[str], schema: Schema
) -> list[tuple[BaseFile, Sequence[Bounds]]]:
    """The data files with the bounds of these columns; None where they are not known."""
    fields = [schema.find_field(name) for name in names]
    return [(base[file.file_path], [bounds_of(file, one) for one in fields]) for file in data]


def can_be_searched(key: pa.Schema) -> bool:
    """Whether equal values of these types are equal to the search: NaN and -0.0 are not."""
    return not any(pa.types.is_floating(f.type) or pa.types.is_nested(f.type) for f in key)

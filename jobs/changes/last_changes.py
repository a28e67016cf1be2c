"""The last change of each key among few landed rows, by Arrow; of many, `sql/spark/last_change_per_key.sql.j2` says it.

Only of changes that are ordered by batch and position, each as it was read first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.changes.files import LandedSlice
from jobs.changes.planned_files import PlannedFiles
from jobs.spec.columns import RowColumn


@dataclass(frozen=True)
class LastChanges:
    """The changes of some batches; travels to Spark's workers.

    Attributes:
        columns: of the table's rows.
        may_keep: changes may leave columns as they were.
    """

    files: PlannedFiles
    first: int
    last: int
    columns: tuple[RowColumn, ...]
    may_keep: bool

    def read(self) -> pa.Table | None:
        """A row for each key: the columns, and ``__op``. None where a change leaves columns as they were.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        landed = self.files.read(self.first, self.last)
        if self.may_keep and "kept" in landed.columns and _some_keep(landed):
            return None
        rows = pa.table({c.name: landed.at(c.path) for c in self.columns} | {"__op": landed.plain(("op",))})
        return rows.take(last_of_each([rows[c.name] for c in self.columns if c.is_key]))


def _some_keep(landed: LandedSlice) -> bool:
    names: int | None = pc.sum(pc.list_value_length(landed.columns["kept"])).as_py()
    return bool(names)


def last_of_each(keys: list[pa.ChunkedArray]) -> pa.Array:
    """Where each key stands last; null is a key like others."""
    numbers = np.zeros(len(keys[0]), np.int64)
    for column in keys:
        coded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
        # Numbered again after each column, so that they stay small.
        _, numbers = np.unique(numbers * len(coded.dictionary) + coded.indices.to_numpy(), return_inverse=True)
    _, from_the_end = np.unique(numbers[::-1], return_index=True)
    return pa.array(np.sort(len(numbers) - 1 - from_the_end))

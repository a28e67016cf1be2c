"""The last change of each key among landed rows, by Arrow; of more rows `sql/spark/last_change_per_key.sql.j2` says it.

Only of changes that are ordered by batch and position, each as it was read first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.changes.files import LandedSlice
from jobs.changes.key_shares import share_of_each
from jobs.changes.planned_files import PlannedFiles
from jobs.spec.columns import RowColumn


@dataclass(frozen=True)
class LastChanges:
    """The changes of some batches; travels to Spark's workers.

    Attributes:
        columns: of the table's rows.
        may_keep: changes may leave columns as they were.
        shares: into so many parts they are read, by key.
    """

    files: PlannedFiles
    first: int
    last: int
    columns: tuple[RowColumn, ...]
    may_keep: bool
    shares: int = 1

    def read(self, share: int) -> pa.Table | None:
        """A row for each key of a share: the columns, and ``__op``. None where a change leaves columns as they were.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        landed = self.files.read(self.first, self.last) if self.shares == 1 else self._part(share)
        if self.may_keep and "kept" in landed.columns and _some_keep(landed):
            return None
        rows = pa.table({c.name: landed.at(c.path) for c in self.columns} | {"__op": landed.plain(("op",))})
        return rows.take(last_of_each([rows[c.name] for c in self.columns if c.is_key]))

    def _part(self, share: int) -> LandedSlice:
        """Piece by piece, so that what a task holds does not follow the number of all changes."""
        keys = [c.path for c in self.columns if c.is_key]
        pieces = self.files.in_pieces(self.first, self.last)
        parts = (
            piece.filter(pa.array(share_of_each([piece.at(path) for path in keys], self.shares) == share))
            for piece in pieces
        )
        return LandedSlice.joined(parts).in_order()


def _some_keep(landed: LandedSlice) -> bool:
    names: int | None = pc.sum(pc.list_value_length(landed.columns["kept"])).as_py()
    return bool(names)


def last_of_each(keys: list[pa.ChunkedArray]) -> pa.Array:
    """Where each key stands last; null is a key like others."""
    numbers, different = np.zeros(len(keys[0]), np.int64), 1
    for column in keys:
        coded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
        numbers = numbers * len(coded.dictionary) + coded.indices.to_numpy()
        different *= len(coded.dictionary)
        if column is not keys[0]:  # numbered again, so that they stay small
            known, numbers = np.unique(numbers, return_inverse=True)
            different = len(known)
    last = np.zeros(different, np.int64)
    last[numbers] = np.arange(len(numbers))  # of several the last one stays
    return pa.array(np.sort(last))

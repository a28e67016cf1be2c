"""The last change of each key among landed rows, by Arrow; for many rows by `sql/spark/last_change_per_key.sql.j2`.

Only for changes that are ordered by batch and position (no `order_by`), as they were read first. They are divided by
key into shares, which tasks reduce and merge in parallel.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.changes.files import LandedSlice
from jobs.changes.planned_files import PlannedFiles
from jobs.spec.columns import RowColumn

# The most that rows take in memory: an array of texts has room for 2 GB.
_MOST_BYTES = 1 << 30
# An odd multiplier spreads neighbouring numbers over all 64 bits.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class LastChanges:
    """The changes of some batches; travels to Spark's workers.

    Attributes:
        columns: of the table's rows.
        leaves_unchanged: changes may omit columns.
        deletes_are_rows: a delete is an insert.
        shares: the number of shares, by key, in which the changes are merged.
        readers: the number of tasks that read the changes for all shares; 0: each share reads its own.
    """

    files: PlannedFiles
    first: int
    last: int
    columns: tuple[RowColumn, ...]
    leaves_unchanged: bool
    deletes_are_rows: bool = False
    shares: int = 1
    readers: int = 0

    def read(self) -> pa.Table | None:
        """A row for each key: the columns, and ``__op``. None if a change omits columns, or if the rows are too large.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        pieces = list[LandedSlice]()
        for piece in self.files.in_pieces(self.first, self.last):
            pieces.append(piece)
            if sum(one.nbytes for one in pieces) > _MOST_BYTES:
                return None
        landed = LandedSlice.joined(pieces) if pieces else self.files.read(self.first, self.last)
        if self.leaves_unchanged and "kept" in landed.columns and _some_keep(landed):
            return None
        return self._last(landed)

    def read_share(self, share: int) -> pa.Table:
        """A row for each key of one share. Raises as `read` does."""
        pieces = self.files.in_pieces(self.first, self.last)
        own = (piece.filter(pa.array(self._shares(piece) == share)) for piece in pieces)
        return self._last(LandedSlice.joined(map(self._last_of_each_key, own)))

    def parted(self, reader: int, of: int) -> Iterator[tuple[int, pa.Table]]:
        """The last landed rows of each key that reader number `reader` of `of` finds, with their share.

        Of each piece only one for a key, so that also a share with a key that changes often is bounded.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        for piece in self.files.share(reader, of).in_pieces(self.first, self.last):
            last = self._last_of_each_key(piece)
            shares = self._shares(last)
            by_share = pa.table(dict(last.columns)).take(pa.array(np.argsort(shares, kind="stable")))
            ends = np.cumsum(np.bincount(shares, minlength=self.shares)).tolist()
            for share, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
                if end > start:
                    yield share, by_share.slice(start, end - start)

    def last_of(self, parts: Iterable[pa.Table]) -> pa.Table:
        """What all readers found for a share, as `read_share` returns it."""
        return self._last(LandedSlice.joined(map(LandedSlice.of, parts)))

    def _last(self, landed: LandedSlice) -> pa.Table:
        last = self._last_of_each_key(landed)
        columns = {c.name: last.at(c.path) for c in self.columns}
        return pa.table(columns | {"__op": last.operations(self.deletes_are_rows)})

    def _last_of_each_key(self, landed: LandedSlice) -> LandedSlice:
        ordered = landed.in_order()
        return ordered.take(last_of_each(self._keys(ordered)))

    def _shares(self, landed: LandedSlice) -> npt.NDArray[np.int64]:
        return share_of_each(self._keys(landed), self.shares)

    def _keys(self, landed: LandedSlice) -> list[pa.Array]:
        return [landed.at(c.path) for c in self.columns if c.is_key]


def _some_keep(landed: LandedSlice) -> bool:
    names: int | None = pc.sum(pc.list_value_length(landed.columns["kept"])).as_py()
    return bool(names)


def last_of_each(keys: Sequence[pa.Array]) -> pa.Array:
    """Row numbers, ascending, of each key's last row. Null counts as a key."""
    numbers, different = np.zeros(len(keys[0]), np.int64), 1
    for column in keys:
        coded = pc.dictionary_encode(column, null_encoding="encode")
        numbers = numbers * len(coded.dictionary) + coded.indices.to_numpy()
        different *= len(coded.dictionary)
        if column is not keys[0]:  # number again from 0, so that the product does not overflow
            known, numbers = np.unique(numbers, return_inverse=True)
            different = len(known)
    last = np.zeros(different, np.int64)
    last[numbers] = np.arange(len(numbers))  # of several assignments the last one wins
    return pa.array(np.sort(last))


def share_of_each(keys: Sequence[pa.Array], shares: int) -> npt.NDArray[np.int64]:
    """The number of each row's share, from the columns of its key: no key is in two shares. Null counts as a value.

    Does not depend on the machine: all tasks divide the same rows in the same way.
    """
    mixed = np.zeros(len(keys[0]), np.uint64)
    for column in keys:
        mixed = (mixed ^ _numbers(column)) * _SPREAD
    found: npt.NDArray[np.int64] = ((mixed >> np.uint64(32)) % np.uint64(shares)).astype(np.int64)
    return found


def _numbers(column: pa.Array) -> npt.NDArray[np.uint64]:
    """Equal numbers for equal values."""
    if pa.types.is_integer(column.type):
        whole: npt.NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return whole.view(np.uint64)
    binary = pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type)
    texts = column.cast(pa.binary()) if binary else column.cast(pa.string()).cast(pa.binary())
    return np.fromiter(map(zlib.crc32, pc.fill_null(texts, b"").to_pylist()), np.uint64, len(column))

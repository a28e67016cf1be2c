"""Assembles the values of records from what was read of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.cursors import Cursors, Ints, Mask

Read = Callable[[Cursors], pa.Array]
"""Reads one value of each record."""

# If at most this many records have more items, decoding them one by one costs less.
_FEW = 8
_MOST_ITEMS = 4096


def where(cursors: Cursors, chosen: Mask, read: Read) -> pa.Array:
    """A value for each chosen record, null for the others."""
    rows = np.flatnonzero(chosen)
    values = cursors.read(rows, read)
    return values if len(rows) == len(cursors) else spread(values, rows, len(cursors))


def spread(values: pa.Array, rows: Ints, count: int) -> pa.Array:
    """An array of `count` values: these in their rows, null in the others."""
    places, absent = np.zeros(count, np.int64), np.ones(count, np.bool_)
    places[rows], absent[rows] = np.arange(len(rows)), False
    return values.take(arrow(places, absent))


def structs(columns: Sequence[pa.Array], fields: Sequence[pa.Field], like: pa.Array | None, count: int) -> pa.Array:
    """`count` structs of these columns; null where `like` is null."""
    mask = like.is_null() if like is not None and like.null_count else None
    if fields:
        return pa.StructArray.from_arrays(columns, fields=list(fields), mask=mask)
    absent = mask.to_pylist() if mask is not None else [False] * count
    return pa.array([None if null else {} for null in absent], pa.struct([]))


class Lists:
    """The items of one list in each record, read in rounds: in each round at most one item of each record."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._items: list[pa.Array] = []
        self._owners: list[Ints] = []

    def add(self, rows: Ints, items: pa.Array) -> None:
        self._items.append(items)
        self._owners.append(rows)

    def goes_on(self, cursors: Cursors, rows: Ints) -> bool:
        """Whether another round for these records is worth it; otherwise the records are given up."""
        turns = len(self._items)
        if not len(rows) or turns < _FEW or (len(rows) >= _FEW and turns < _MOST_ITEMS):
            return bool(len(rows))
        cursors.refuse(rows)
        return False

    def concatenated(self, empty: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The list offsets (one more than records), and the items in the records' order."""
        items = pa.concat_arrays(self._items) if self._items else empty
        owners = np.concatenate(self._owners) if self._owners else np.zeros(0, np.int64)
        if len(self._items) > 1:
            items = items.take(arrow(np.argsort(owners, kind="stable")))
        lengths = np.bincount(owners, minlength=self._records)
        return arrow(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)), items


def maps(cursors: Cursors, offsets: pa.Array, entries: pa.Array) -> pa.Array:
    """Maps of entries (structs of key and value); maps with a duplicate key are left to the row decoder."""
    keys, values = entries.flatten()
    if keys.null_count:  # from bad records
        keys = keys.fill_null(pa.scalar("" if pa.types.is_string(keys.type) else 0).cast(keys.type))
    owners, codes = np.repeat(np.arange(len(cursors)), np.diff(offsets.to_numpy())), keys.dictionary_encode()
    pairs = owners * max(1, len(codes.dictionary)) + codes.indices.to_numpy()
    order = np.argsort(pairs, kind="stable")
    again = pairs[order][1:] == pairs[order][:-1]
    cursors.refuse(np.unique(owners[order][1:][again]))
    return pa.MapArray.from_arrays(offsets, keys, values)

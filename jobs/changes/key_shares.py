"""Divides changes by key into shares that tasks reduce and merge in parallel: no key is in two shares."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# An odd multiplier spreads neighbouring numbers over all 64 bits.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def share_of_each(keys: Sequence[pa.Array], shares: int) -> npt.NDArray[np.int64]:
    """The number of each row's share, from the columns of its key; null counts as a value.

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

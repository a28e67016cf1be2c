"""What ClickHouse's types cannot hold though the declared types can, found in Arrow before anything is sent.

ClickHouse would store such values as others: a null array as an empty one, a time after 2299 as another time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NULL_COLLECTION = "null in an array, map or tuple column"
OUT_OF_RANGE = "a date or time before 1900 or after 2299"

_DAYS = (-25567, 120529)
_MICROS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)

Mask = np.ndarray  # of bool, one per row


def may_be_unrepresentable(kind: pa.DataType) -> bool:
    """Whether values of this declared type can be ones that ClickHouse would change."""
    return bool(pa.types.is_nested(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def null_collections(array: pa.Array, top: bool = True) -> Mask | None:
    """Rows with a null where ClickHouse has none: at the top (`top`) or deeper; None where there are none."""
    if not pa.types.is_nested(array.type):
        return None
    found = _or(None, _mask(pc.is_null(array)) if top and array.null_count else None)
    for rows, child in _children(array):
        found = _or(found, _raised(null_collections(child), rows, len(array)))
    return found


def out_of_range(array: pa.Array) -> Mask | None:
    """Rows with a date or time that Date32 and DateTime64(6) cannot hold; None where there are none."""
    kind = array.type
    if pa.types.is_date(kind):
        return _outside(array.cast(pa.int32()), *_DAYS)
    if pa.types.is_timestamp(kind):
        return _outside(array.cast(pa.int64()), *_MICROS)
    found: Mask | None = None
    if pa.types.is_nested(kind):
        for rows, child in _children(array):
            found = _or(found, _raised(out_of_range(child), rows, len(array)))
    return found


def _outside(values: pa.Array, low: int, high: int) -> Mask | None:
    bounds = pc.min_max(values).as_py()
    if bounds["min"] is None or (bounds["min"] >= low and bounds["max"] <= high):
        return None
    return _mask(pc.or_(pc.less(values, low), pc.greater(values, high)))


def _children(array: pa.Array) -> list[tuple[Mask | None, pa.Array]]:
    """The arrays inside, each with the row of `array` that each of its values belongs to (None: the same row)."""
    kind = array.type
    if pa.types.is_struct(kind):
        # Of a null struct the fields are no problem of their own.
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(valid)
        whole = array.drop_null() if array.null_count else array
        return [(rows, pc.struct_field(whole, [n])) for n in range(kind.num_fields)]
    if pa.types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        rows, entries = pc.list_parent_indices(array).to_numpy(), array.flatten()
        return [(rows, pc.struct_field(entries, [n])) for n in range(2)]
    return [(pc.list_parent_indices(array).to_numpy(), array.flatten())]


def _raised(mask: Mask | None, rows: Mask | None, count: int) -> Mask | None:
    """A mask of inner values as one of the rows that they belong to."""
    if mask is None or rows is None:
        return mask
    raised = np.zeros(count, dtype=bool)
    raised[rows[mask]] = True
    return raised


def _mask(values: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=bool)


def _or(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return one if other is None else other
    both: Mask = one | other
    return both

"""What a system can hold of the values of a declared type, and the values that it cannot. Pure, in Arrow.

Such a value would be stored as another one (a null array as an empty one, a time after 2299 as another time), or fail
the whole statement. So it is found before anything is sent, also inside nested values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import repeat
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.schema.types import as_integers

NULL_COLLECTION = "null in an array, map or tuple column"
NULL_ELEMENT = "null in an array"
UNREADABLE = "a text that is none of the column's type"

DAY = 86_400_000_000
Mask = np.ndarray  # of bool, one per row
Judge = Callable[[pa.Array], "Mask | None"]


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value, both included. Dates in days, times in microseconds."""

    low: int | Decimal
    high: int | Decimal

    def ends(self, kind: pa.DataType) -> Iterator[tuple[pa.Scalar, Callable[..., pa.Array]]]:
        """Each bound as a scalar of the type by which values are compared, and what finds the values beyond it; without
        bounds that no value of the type is beyond."""
        as_number = {"date": pa.int32(), "timestamp": pa.int64()}.get(family(kind) or "", kind)
        for bound, is_beyond in ((self.low, pc.less), (self.high, pc.greater)):
            nearest = _float_within(bound, kind) if pa.types.is_floating(kind) else bound
            with suppress(pa.ArrowInvalid, OverflowError):
                yield pa.scalar(nearest, as_number), is_beyond


@dataclass(frozen=True)
class Limits:
    """The values that a column can hold.

    Attributes:
        ranges: by `family` of the declared type, also of nested types; families that are missing have no bounds.
        collections: arrays, maps and structs may be null.
        elements: elements of arrays may be null.
        remedy: how to let the column hold such nulls.
        outside: the problem of a value outside its range, for messages.
        checks: more problems of values, each with what finds the rows that have it.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    collections: bool = True
    elements: bool = True
    remedy: str = ""
    outside: str = "the value is out of the type's range"
    checks: tuple[tuple[str, Judge], ...] = ()

    def range_of(self, kind: pa.DataType) -> Range | None:
        return self.ranges.get(family(kind) or "")


def family(kind: pa.DataType) -> str | None:
    """The family whose range bounds values of this type; None: nothing bounds them."""
    if pa.types.is_date(kind):
        return "date"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "float"
    return "decimal" if pa.types.is_decimal(kind) else None


def _float_within(bound: int | Decimal, kind: pa.DataType) -> float:
    """The bound as a float; where none is written like it, the next one towards zero."""
    of = np.float32 if kind == pa.float32() else np.float64
    with np.errstate(over="ignore"):  # infinity, for which the largest float stands
        found = of(bound)
    is_it = Decimal(str(found)) == bound or Decimal(float(found)).copy_abs() <= Decimal(bound).copy_abs()
    return float(found if is_it else np.nextafter(found, of(0)))


def null_collections(array: pa.Array, limits: Limits) -> Mask | None:
    """Rows with a null that the column cannot hold; None if there are none."""
    kind = array.type
    if not pa.types.is_nested(kind):
        return None
    found = mask(pc.is_null(array)) if not limits.collections and array.null_count else None
    for rows, child in _children(array):
        inner = null_collections(child, limits)
        if not limits.elements and pa.types.is_list(kind) and child.null_count:
            inner = _or(inner, mask(pc.is_null(child)))
        found = _or(found, _raised(inner, rows, len(array)))
    return found


def refuses_nulls(kind: pa.DataType, limits: Limits, nullable: bool) -> bool:
    """Whether the declared type allows nulls that the column cannot hold; `nullable`: the value itself may be null."""
    if not pa.types.is_nested(kind):
        return False
    if nullable and not limits.collections:
        return True
    if pa.types.is_list(kind) and kind.value_field.nullable and not limits.elements:
        return True
    return any(refuses_nulls(f.type, limits, f.nullable) for f in inner_fields(kind))


def inner_fields(kind: pa.DataType) -> list[pa.Field]:
    """The fields inside an array, a map or a struct: the parts that `flawed_parts` judges."""
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(n) for n in range(kind.num_fields)]


def out_of_range(array: pa.Array, limits: Limits) -> Mask | None:
    """Rows with a value outside its range; None if there are none."""
    if bounds := limits.range_of(array.type):
        return _outside(array, bounds)
    if not pa.types.is_nested(array.type):
        return None
    return flawed_parts(array, repeat(partial(out_of_range, limits=limits)))


def flawed_parts(array: pa.Array, judges: Iterable[Judge]) -> Mask | None:
    """Rows with a flaw in one part (of a map: keys, values), each of which has a judge; None if there are none."""
    found: Mask | None = None
    for (rows, child), judge in zip(_children(array), judges, strict=False):
        found = _or(found, _raised(judge(child), rows, len(array)))
    return found


def brought_in_range(array: pa.Array, limits: Limits, how: Literal["clamp", "null"], nullable: bool) -> pa.Array:
    """Replaces each value outside its range by the nearest value that the column can hold, or by null.

    By null only if the declared type allows it (`nullable`: the value itself may be null); else it is not replaced.
    """
    # A copy, which has no offset into shared buffers: the parts of a nested array need that.
    return _in_range(array.take(pa.array(np.arange(len(array)))), limits, how, nullable)


def _in_range(array: pa.Array, limits: Limits, how: Literal["clamp", "null"], nullable: bool) -> pa.Array:
    kind = array.type
    if bounds := limits.range_of(kind):
        return _clamped(array, bounds) if how == "clamp" else _nulled(array, bounds) if nullable else array
    if pa.types.is_struct(kind):
        fields = list(kind)
        parts = [_in_range(array.field(n), limits, how, f.nullable) for n, f in enumerate(fields)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null()) if fields else array
    if pa.types.is_map(kind):
        items = _in_range(array.items, limits, how, kind.item_field.nullable)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=array.is_null())
    if pa.types.is_list(kind):
        values = _in_range(array.values, limits, how, kind.value_field.nullable)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    return array


def _clamped(array: pa.Array, bounds: Range) -> pa.Array:
    for end, is_beyond in bounds.ends(array.type):
        array = pc.if_else(is_beyond(as_integers(array), end), end.cast(array.type), array)
    return array


def _nulled(array: pa.Array, bounds: Range) -> pa.Array:
    beyond = _outside(array, bounds)
    return array if beyond is None else pc.if_else(pa.array(beyond), pa.scalar(None, array.type), array)


def _outside(array: pa.Array, bounds: Range) -> Mask | None:
    values = as_integers(array)  # some times cannot be formatted as text
    found: Mask | None = None
    least, most = pc.min_max(values).as_py().values()
    # Only nulls; or only NaN, which is in no range, and which the server judges.
    if least is None or math.isnan(least) or (bounds.low <= least and most <= bounds.high):
        return None
    for end, is_beyond in bounds.ends(array.type):
        found = _or(found, mask(is_beyond(values, end)))
    return found if found is not None and found.any() else None


def _children(array: pa.Array) -> list[tuple[Mask | None, pa.Array]]:
    """The arrays inside, each with the row numbers of `array` to which its values belong (None: the same rows)."""
    kind = array.type
    if pa.types.is_struct(kind):
        # Ignore the fields of a null struct.
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
    """A mask of inner values as a mask of the rows that contain them."""
    if mask is None or rows is None:
        return mask
    raised = np.zeros(count, dtype=bool)
    raised[rows[mask]] = True
    return raised


def mask(values: pa.Array) -> Mask:
    """Booleans of Arrow; null is False."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=bool)


def _or(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return one if other is None else other
    both: Mask = one | other
    return both

"""Values of Arrow columns in Python, also dates and times beyond the year 9999, which Python does not have."""

from __future__ import annotations

import pyarrow as pa

from jobs.schema.types import inside, with_inside

_NO_DATE = (OverflowError, ValueError)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """The column's values. Where a value, or a part of it, is beyond Python's dates, its dates are numbers of days, and
    its times of the type's unit."""
    try:
        return list(column.to_pylist())
    except _NO_DATE:
        numbers = column.cast(_of_numbers(column.type)).to_pylist()
    return [_value(value, number) for value, number in zip(column, numbers, strict=True)]


def _value(value: pa.Scalar, in_numbers: object) -> object:
    try:
        found: object = value.as_py()
    except _NO_DATE:
        return in_numbers
    return found


def _of_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with numbers for dates and times, also inside it."""
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    found = with_inside(kind, [field.with_type(_of_numbers(field.type)) for field in inside(kind)])
    return pa.map_(_of_numbers(kind.key_type), found.item_field) if pa.types.is_map(kind) else found

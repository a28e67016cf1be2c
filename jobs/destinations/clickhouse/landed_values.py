"""Landed values that a column cannot hold: they were landed when the pipeline file declared the column otherwise.

ClickHouse would store another value without a word: 0 in place of null, or what is left of a number that is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from jobs.destinations.clickhouse.columns import Column
from jobs.destinations.limits import Judge, Mask, flawed_parts, inner_fields, mask
from jobs.destinations.refusal import LimitedColumn, judged
from jobs.evolution import landed_otherwise
from jobs.schema.types import is_wider, type_name


def check_landed(rows: pa.Table, columns: Sequence[Column], limited: Sequence[LimitedColumn], where: str) -> None:
    """Requires that the columns, as the table has them, can hold these rows.

    Args:
        limited: the same columns; deletes are checked in key columns only.

    Raises:
        SchemaRefused: names a column that cannot.
    """
    for column, limits in zip(columns, limited, strict=True):
        values, field = rows[column.name].combine_chunks(), pa.field("", column.arrow, column.nullable)
        if judged(rows, limits, too_large(values, field)).any():
            what = f"column {column.name} is {type_name(column.arrow)}, which cannot hold a value that is landed"
            raise landed_otherwise(what, "with the type that it had then", where)
        if judged(rows, limits, lacking(values, field)).any():
            what = f"column {column.name} is `not null`, and a row that is landed has no value"
            raise landed_otherwise(what, "without `not null`", where)


def too_large(values: pa.Array, field: pa.Field) -> Mask | None:
    """Not None if values that were landed in a wider type are no values of the field's."""
    if pa.types.is_nested(field.type):
        return _inside(values, field.type, too_large)
    if not is_wider(field.type, values.type):
        return None
    try:
        values.cast(field.type)
    except pa.ArrowInvalid:
        return np.ones(len(values), dtype=bool)
    return None


def lacking(values: pa.Array, field: pa.Field) -> Mask | None:
    """Rows with a null where the field, or a part of it, allows none; None if there are none. Null arrays, maps and
    structs are left to `null_collections`."""
    if pa.types.is_nested(field.type):
        return _inside(values, field.type, lacking)
    return mask(values.is_null()) if values.null_count and not field.nullable else None


def _inside(values: pa.Array, kind: pa.DataType, judge: Callable[..., Mask | None]) -> Mask | None:
    """The rows with a flaw in a part. Landed structs may have more fields than the file declares."""
    declared = inner_fields(kind)
    if pa.types.is_struct(kind):
        by_name = {field.name: field for field in declared}
        declared = [by_name.get(field.name) for field in values.type]
    judges: list[Judge] = [partial(judge, field=field) if field else _no_flaw for field in declared]
    return flawed_parts(values, judges)


def _no_flaw(values: pa.Array) -> None:
    del values

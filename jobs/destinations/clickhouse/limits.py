"""Which values of the declared types the columns of a ClickHouse table can hold. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa

from jobs.destinations.clickhouse.columns import Column, table_column
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.limits import DAY, Limits, Range, family
from jobs.destinations.refusal import LimitedColumn
from jobs.spec.columns import row_columns
from jobs.spec.pipeline import PipelineSpec

_OUTSIDE = "a date or time before 1900 or after 2299"
_REMEDY = "set `null_collections: empty`, or declare it `not null`"
_FIRST, _LAST = -25567, 120529
_SECOND = 1_000_000
# The ranges of the wire types, Date32 and DateTime64(6).
_WIRE = {"date": Range(_FIRST, _LAST), "timestamp": Range(_FIRST * DAY, (_LAST + 1) * DAY - 1)}
# The ranges of named types: of dates, up to the last complete day; of times.
_TIMES = {
    # As a time, a day is its first moment.
    r"Date": {"date": Range(0, 65535), "timestamp": Range(0, 65535 * DAY)},
    r"DateTime(\(.*)?": {"date": Range(0, 2**32 // 86_400 - 1), "timestamp": Range(0, (2**32 - 1) * _SECOND)},
    r"DateTime64\(9.*": {
        "date": Range(_FIRST, 2**63 // 1000 // DAY - 1),
        "timestamp": Range(_FIRST * DAY, (2**63 - 1) // 1000),
    },
}


def limited_columns(spec: PipelineSpec, table: ClickHouseTable) -> tuple[LimitedColumn, ...]:
    """The columns of the table, in their order."""
    columns = (table_column(c, table.column_types) for c in row_columns(spec, table))
    return tuple(limited_column(column, table, spec.changes.ordered_by) for column in columns)


def limited_column(column: Column, table: ClickHouseTable, order_by: str | None) -> LimitedColumn:
    """What a column can hold. The server refuses other values of a named type (`column_types`), unless adjusted.

    Args:
        order_by: the column that orders the changes of one key.
    """
    ranges: Mapping[str, Range] = _WIRE
    of, outside = family(column.arrow), _OUTSIDE
    own = _named(column) if column.declared and table.out_of_range != "refuse" else None
    # A text is not adjusted: only the server knows which number it is.
    if of and own:
        outside = Limits.outside
        wire = _WIRE.get(of, own)
        ranges = {**_WIRE, of: Range(max(own.low, wire.low), min(own.high, wire.high))}
    return LimitedColumn(
        name=column.name,
        label=column.name,
        declared=column.arrow,
        type=column.type,
        nullable=column.nullable and (not column.declared or "Nullable" in column.type),
        is_key=column.is_key,
        limits=Limits(ranges, collections=table.null_collections == "empty", remedy=_REMEDY, outside=outside),
        fixed=column.name == order_by,
    )


def _named(column: Column) -> Range | None:
    """The range of a named type, in the declared type's units."""
    target, source = column.bare, family(column.arrow)
    if found := re.fullmatch(r"(U?)Int(\d+)", target):
        bits = int(found[2])
        return Range(0, 2**bits - 1) if found[1] else Range(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if found := re.fullmatch(r"Decimal\((\d+), ?(\d+)\)", target):
        return _decimals(column.arrow, int(found[1]), int(found[2]))
    return next((ranges.get(source or "") for name, ranges in _TIMES.items() if re.fullmatch(name, target)), None)


def _decimals(source: pa.DataType, precision: int, scale: int) -> Range:
    whole = 10 ** (precision - scale)
    if pa.types.is_integer(source):
        return Range(1 - whole, whole - 1)
    # The smaller number of digits after the point.
    digits = min(scale, source.scale) if pa.types.is_decimal(source) else scale
    # Without arithmetic, which rounds to 28 digits.
    most = Decimal((0, (9,) * (precision - scale + digits), -digits))
    return Range(most.copy_negate(), most)

"""Which values of the declared types the columns of a BigQuery table can hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.field import AnyField, by_name
from jobs.destinations.bigquery.json_texts import not_json
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.type_parameters import limited, shown
from jobs.destinations.limits import DAY, UNREADABLE, Judge, Limits, Range
from jobs.destinations.refusal import LimitedColumn
from jobs.spec.columns import row_columns
from jobs.spec.pipeline import PipelineSpec

_OUTSIDE = "a date or time outside of the years 1 to 9999"
_REMEDY = "set `null_elements: drop`, or declare the elements `not null`"
_FIRST, _LAST = -719162, 2932896
_RANGES = {"date": Range(_FIRST, _LAST), "timestamp": Range(_FIRST * DAY, (_LAST + 1) * DAY - 1)}
_NO_TIME = "a number that is no time of day"
# What conversions of whole numbers can take, and the error for other values.
_NUMBERS = {
    "int_to_DATE": (_RANGES["date"], _OUTSIDE),
    "int_to_TIME": (Range(0, DAY // 1000 - 1), _NO_TIME),
    "long_to_TIME": (Range(0, DAY - 1), _NO_TIME),
}
_OF_TEXT = "string_to_"


def may_refuse(conversion: str | None) -> bool:
    """Whether there are values that this conversion cannot take."""
    return conversion is not None and (conversion in _NUMBERS or conversion.startswith(_OF_TEXT))


def limited_columns(
    spec: PipelineSpec,
    table: BigQueryTable,
    columns: Sequence[Column],
    present: Sequence[AnyField] = (),
    asks: Callable[[str], Judge] | None = None,
) -> tuple[LimitedColumn, ...]:
    """The columns of rows before they are loaded: ``c0``, ``c1``, … in the order of the table's columns.

    Args:
        present: the fields of the table, if it exists: its types may have parameters.
        asks: gives for a type what finds texts that BigQuery cannot convert to it; None: BigQuery is not asked.
    """
    declared, there = {c.path: c for c in row_columns(spec, table)}, by_name(present)
    limits = Limits(_RANGES, elements=table.null_elements == "drop", remedy=_REMEDY, outside=_OUTSIDE)
    return tuple(
        LimitedColumn(
            name=f"c{number}",
            label=column.name,
            declared=declared[column.source].type,
            type=_type(column, there.get(column.name.lower())),
            nullable=declared[column.source].nullable,
            is_key=column.is_key,
            limits=limited(_converted(limits, column.conversion, asks), column, present),
            fixed=column.source == ("value", spec.changes.ordered_by),
        )
        for number, column in enumerate(columns)
    )


def _converted(limits: Limits, conversion: str | None, asks: Callable[[str], Judge] | None) -> Limits:
    """What a column holds, with the limits of its conversion."""
    if conversion in _NUMBERS:
        bounds, outside = _NUMBERS[conversion]
        return replace(limits, ranges={"integer": bounds}, outside=outside)
    if conversion is None or not conversion.startswith(_OF_TEXT):
        return limits
    wanted = conversion.removeprefix(_OF_TEXT)
    judge = not_json if wanted == "JSON" else asks(wanted) if asks else None
    return replace(limits, checks=((UNREADABLE, judge),)) if judge else limits


def _type(column: Column, there: AnyField | None) -> str:
    named = shown(there) if there and there.field_type == column.field.field_type else column.field.field_type
    return f"REPEATED {named}" if column.field.mode == "REPEATED" else named

"""What the columns of a BigQuery table hold of the declared types' values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.texts import is_asked, unreadable
from jobs.destinations.held_values import DAY, Held, Mask, Range
from jobs.destinations.refusal import HeldColumn
from jobs.spec.columns import row_columns
from jobs.spec.pipeline import PipelineSpec

_OUTSIDE = "a date or time outside of the years 1 to 9999"
_REMEDY = "set `null_elements: drop`, or declare the elements `not null`"
_FIRST, _LAST = -719162, 2932896
_RANGES = {"date": Range(_FIRST, _LAST), "timestamp": Range(_FIRST * DAY, (_LAST + 1) * DAY - 1)}


def held_columns(
    spec: PipelineSpec,
    table: BigQueryTable,
    columns: Sequence[Column],
    asks: Callable[[pa.Array], Mask] | None = None,
) -> tuple[HeldColumn, ...]:
    """The columns of staged rows: ``c0``, ``c1``, … in the order of the table's columns.

    Args:
        asks: finds texts that BigQuery cannot convert, where only it can tell; None: nothing is sent to it.
    """
    declared = {c.path: c for c in row_columns(spec, table.metadata_columns)}
    held = Held(_RANGES, elements=table.null_elements == "drop", remedy=_REMEDY, outside=_OUTSIDE)
    return tuple(
        HeldColumn(
            name=f"c{number}",
            label=column.name,
            declared=declared[column.source].type,
            type=f"{'REPEATED ' if column.field.mode == 'REPEATED' else ''}{column.field.field_type}",
            nullable=declared[column.source].nullable,
            is_key=column.is_key,
            held=replace(held, unreadable=asks if is_asked(column.conversion) else unreadable(column.conversion)),
            fixed=column.source == ("value", spec.changes.ordered_by),
        )
        for number, column in enumerate(columns)
    )

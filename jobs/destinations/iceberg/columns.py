"""The columns of an Iceberg table's rows: as declared, except for names that Iceberg reserves, and for times of day."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from jobs.destinations.iceberg.spec import IcebergTable
from jobs.schema.types import inside, with_inside
from jobs.spec.columns import RowColumn, row_columns
from jobs.spec.pipeline import PipelineSpec


def table_columns(spec: PipelineSpec, table: IcebergTable) -> list[RowColumn]:
    """The row's columns. Iceberg reserves `_partition`, so ours is `__partition`.

    A time of day is text: Spark 4.0 reads no table that has a column of Iceberg's type `time`.
    """
    columns = map(with_times_as_text, row_columns(spec, table))
    return [replace(c, name="__partition") if c.path == ("kafka", "partition") else c for c in columns]


def with_times_as_text(column: RowColumn) -> RowColumn:
    own = column.own and _times_as_text(column.own)
    return replace(column, own=own if own != column.type else None)


def _times_as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_time(kind):
        return pa.string()
    return with_inside(kind, [f.with_type(_times_as_text(f.type)) for f in inside(kind)])

"""The columns of an Iceberg table's rows: as declared, except for names that Iceberg reserves."""

from __future__ import annotations

from dataclasses import replace

from jobs.destinations.iceberg.spec import IcebergTable
from jobs.spec.columns import RowColumn, row_columns
from jobs.spec.pipeline import PipelineSpec


def table_columns(spec: PipelineSpec, table: IcebergTable) -> list[RowColumn]:
    """The row's columns. Iceberg reserves `_partition`, so ours is `__partition`."""
    columns = row_columns(spec, table)
    return [replace(c, name="__partition") if c.path == ("kafka", "partition") else c for c in columns]

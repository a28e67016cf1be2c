"""The insert into a ClickHouse table, as far as the pipeline file alone tells it: for plans and people."""

from __future__ import annotations

from jobs.changes.columns import row_columns
from jobs.destinations.clickhouse.columns import table_column
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.tables import Layout
from jobs.spec.pipeline import PipelineSpec


def statement(spec: PipelineSpec, table: ClickHouseTable) -> str:
    """The names that a run makes stand there as `…`."""
    layout = Layout(
        table=table,
        columns=tuple(table_column(c, table.column_types) for c in row_columns(spec, list(table.metadata_columns))),
        ordered=table.mode != "append" and spec.changes.ordered_by is not None,
        window=0,
        cluster=None,
    )
    return Statements(layout, (layout.path[0], "…"), shards=1).insert()

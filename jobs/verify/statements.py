"""The statement that brings changes into a table, as far as the pipeline file alone tells it: for plans and people.

A run adds what only it knows: bounds of the batch's keys (they prune files), columns that changes leave as they were,
and the names of what it makes for itself, which stand here as `…`.
"""

from __future__ import annotations

from dataclasses import replace

from jobs.changes.columns import row_columns
from jobs.destinations.bigquery.columns import destination_columns
from jobs.destinations.bigquery.direct_load import takes_landed_rows
from jobs.destinations.bigquery.statement import statement
from jobs.destinations.clickhouse.columns import table_column
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.tables import Layout
from jobs.spec import PipelineSpec
from jobs.spec.tables import BigQueryTable, ClickHouseTable, IcebergTable, Table
from sql import render


def table_statement(spec: PipelineSpec, table: Table) -> str:
    """Empty where there is none: an append table in Iceberg gets data files.

    Raises:
        ConfigurationError: the table cannot have these columns.
    """
    if isinstance(table, IcebergTable):
        return _iceberg(spec, table)
    return _bigquery(spec, table) if isinstance(table, BigQueryTable) else _clickhouse(spec, table)


def _iceberg(spec: PipelineSpec, table: IcebergTable) -> str:
    key = spec.changes.key
    if table.mode == "append" or key is None:
        return ""
    return render(
        "spark",
        "merge",
        target=(table.connection, *table.table.split("."), "branch_…"),
        changes=["last_changes"],
        tombstones=None,
        keys=tuple(key.columns),
        columns=[c.name for c in row_columns(spec, list(table.metadata_columns))],
        mode=table.mode,
        null_safe=key.nulls == "match",
        bounded={},
        order_by=spec.changes.ordered_by,
        kept=(),
    )


def _bigquery(spec: PipelineSpec, table: BigQueryTable) -> str:
    where = f"bigquery {table.table}"
    columns = destination_columns(spec, table, where)
    dataset, name = table.table.split(".")
    intermediate = f"{dataset}._{name}_{table.intermediate_suffix}_…"
    found = statement(spec, table, columns, table.table, intermediate, where).unbounded()
    return replace(found, says_op=takes_landed_rows(spec, table, columns)).text()


def _clickhouse(spec: PipelineSpec, table: ClickHouseTable) -> str:
    layout = Layout(
        table=table,
        columns=tuple(table_column(c, table.column_types) for c in row_columns(spec, list(table.metadata_columns))),
        ordered=table.mode != "append" and spec.changes.ordered_by is not None,
        window=0,
        cluster=None,
    )
    return Statements(layout, (layout.path[0], "…"), shards=1).insert(missing=False)

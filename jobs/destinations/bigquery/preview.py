"""The merge into a BigQuery table, as far as the pipeline file alone tells it: for plans and people."""

from __future__ import annotations

from dataclasses import replace

from jobs.destinations.bigquery import statements as merge
from jobs.destinations.bigquery.columns import destination_columns
from jobs.destinations.bigquery.direct_load import takes_landed_rows
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.spec.pipeline import PipelineSpec


def statement(spec: PipelineSpec, table: BigQueryTable) -> str:
    """The names that a run makes stand there as `…`.

    Raises:
        ConfigurationError: the table cannot have these columns.
    """
    where = f"bigquery {table.table}"
    columns = destination_columns(spec, table, where)
    dataset, name = table.table.split(".")
    intermediate = f"{dataset}._{name}_{table.intermediate_suffix}_…"
    found = merge.statement(spec, table, columns, table.table, intermediate, where).unbounded()
    return replace(found, says_op=takes_landed_rows(spec, table, columns)).text()

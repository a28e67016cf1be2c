"""How many rows a table has, by a query: BigQuery answers `COUNT(*)` of a whole table from metadata and bills nothing.

`numRows` of the table itself is the same figure, but an emulator may not know what a MERGE has done to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.statement import partition_filter
from jobs.spec.tables import BigQueryTable
from resources.bigquery import BigQuery
from sql import render


def count_rows(bigquery: BigQuery, table: BigQueryTable, columns: Sequence[Column]) -> int:
    """The rows of a table that exists."""
    path, whole = (bigquery.table_id(table.table),), partition_filter(table, columns)
    text = render("bigquery", "count_rows", table=path, whole=whole)
    (row,) = bigquery.read(text, {}, f"bigquery {table.table}")
    return int(row["rows"])

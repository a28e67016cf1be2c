"""Every kind of destination, with a reader of the rows that its tables hold."""

from __future__ import annotations

from tests.kit import bigquery, clickhouse
from tests.kit.flow import rows

READ = {"iceberg": rows, "clickhouse": clickhouse.rows, "bigquery": bigquery.rows}

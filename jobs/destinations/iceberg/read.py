"""An Iceberg table's rows, read by Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.reading import TableReader
from jobs.spec.columns import RowColumn
from resources.iceberg import IcebergCatalog
from resources.spark import spark_errors
from sql import render


def branch_path(catalog: IcebergCatalog, table: IcebergTable) -> tuple[str, ...]:
    """The branch that the pipeline publishes to, in Spark SQL."""
    branch = [] if table.branch == "main" else [f"branch_{table.branch}"]
    return (catalog.name, *table.table.split("."), *branch)


class IcebergReader(TableReader):
    """Asks Spark for rows and the table's metadata for numbers."""

    def __init__(
        self, columns: Sequence[RowColumn], catalog: IcebergCatalog, table: IcebergTable, spark: SparkSession
    ) -> None:
        super().__init__(columns)
        self._catalog, self._table, self._spark = catalog, table, spark

    def ask(self, template: str, **arguments: object) -> list[pa.Table]:
        text = render("spark", template, table=branch_path(self._catalog, self._table), **arguments)
        with spark_errors(self._table.table):
            return [self._spark.sql(text).toArrow()]

    def present(self) -> list[str]:
        return list(self._catalog.require(self._table.table).schema().as_arrow().names)

    def known_count(self) -> int | None:
        snapshot = self._catalog.require(self._table.table).snapshot_by_name(self._table.branch)
        summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
        if "total-records" not in summary or summary.get("total-equality-deletes", "0") != "0":
            return None
        return int(summary["total-records"]) - int(summary.get("total-position-deletes", 0))

    def duplicate_keys(self) -> int | None:
        return None

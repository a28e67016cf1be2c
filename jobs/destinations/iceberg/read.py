"""An Iceberg table's rows, read by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.reading import TableReader
from jobs.destinations.row_values import RowValues
from jobs.destinations.shares import reshaped
from jobs.iceberg.history import PipelineBranch, summary_of
from jobs.iceberg.position_deletes import only_data_file
from jobs.iceberg.staging import live_files
from jobs.iceberg.table_property import SKIPPED_BATCHES
from resources.iceberg import IcebergCatalog
from resources.iceberg_errors import catalog_errors
from resources.spark_errors import spark_errors
from sql import SPARK, render


def branch_path(catalog: IcebergCatalog, table: IcebergTable) -> tuple[str, ...]:
    """The branch that the pipeline publishes to, in Spark SQL."""
    branch = [] if table.branch == "main" else [f"branch_{table.branch}"]
    return (catalog.name, *table.table.split("."), *branch)


class IcebergReader(TableReader):
    """Asks Spark for rows and the table's metadata for numbers."""

    def __init__(
        self,
        pipeline: str,
        values: RowValues,
        catalog: IcebergCatalog,
        table: IcebergTable,
        session: Callable[[], SparkSession],
    ) -> None:
        super().__init__(values, SPARK, branch_path(catalog, table))
        self._pipeline, self._catalog, self._table, self._session = pipeline, catalog, table, session

    def answers(self, text: str) -> list[pa.Table]:
        with spark_errors(self._table.table):
            return [self._session().sql(text).toArrow()]

    def present(self) -> list[str]:
        return list(self._catalog.require(self._table.table).schema().as_arrow().names)

    def known_count(self) -> int | None:
        table = self._catalog.require(self._table.table)
        snapshot = table.snapshot_by_name(self._table.branch)
        summary = summary_of(snapshot)
        if snapshot is None or "total-records" not in summary or summary.get("total-equality-deletes", "0") != "0":
            return None
        gone = 0 if summary.get("total-position-deletes", "0") == "0" else self._deleted(table, snapshot.snapshot_id)
        return None if gone is None else int(summary["total-records"]) - gone

    def _deleted(self, table: Table, snapshot: int) -> int | None:
        """How many rows position deletes remove; None: it is not known which data files they are for. Compactions of
        other engines leave deletes of data files that are gone."""
        with catalog_errors(self._table.table):
            deletes = list(live_files(table, snapshot, ManifestContent.DELETES))
            data = {file.file_path for file in live_files(table, snapshot, ManifestContent.DATA)}
        of = [(only_data_file(file), file.record_count) for file in deletes]
        return sum(rows for path, rows in of if path in data) if all(path for path, _ in of) else None

    def duplicate_keys(self) -> int | None:
        return None

    @contextmanager
    def rows(self, spark: SparkSession, limit: int) -> Iterator[DataFrame]:
        names = [c.name for c in self.values.columns]
        found = spark.sql(self.text("some_rows", columns=names, limit=limit))
        yield reshaped(found, self.values.as_read, self.values.schema) if self.values.compared_in_python else found

    def rows_of(
        self, spark: SparkSession, keys: DataFrame, columns: Sequence[str], before: Sequence[int], least: int
    ) -> tuple[DataFrame, int] | None:
        table = self._catalog.require(self._table.table)
        if SKIPPED_BATCHES.read(table.properties, self._pipeline, self._table.branch):
            return None
        for batch in before:
            found = PipelineBranch(self._pipeline, self._table.branch).snapshot_before(table, batch)
            if found and found[1] >= least:
                break
        else:
            return None
        snapshot, newest = found
        path, wanted = (self._catalog.name, *self._table.table.split(".")), names_at(table, snapshot)
        named = [(name, wanted.get(name.lower())) for name in (*keys.columns, *columns)]
        rows = spark.sql(render("spark", "rows_at", table=path, columns=named, snapshot=snapshot.snapshot_id))
        return rows.join(F.broadcast(keys), keys.columns, "left_semi"), newest


def names_at(table: Table, snapshot: Snapshot) -> dict[str, str]:
    """Of the table's columns, in lower case, the names that they had at a snapshot."""
    then = table.schema() if snapshot.schema_id is None else table.schemas()[snapshot.schema_id]
    names = {field.field_id: field.name for field in then.fields}
    return {field.name.lower(): names[field.field_id] for field in table.schema().fields if field.field_id in names}

"""A BigQuery table's rows, read by queries.

Rows are counted by a query too: BigQuery answers `COUNT(*)` of a whole table from metadata and bills nothing. `numRows`
of the table is the same number, but an emulator may not update it after a MERGE.

Rows are read by one query, which is billed once, however many tasks Spark has: its result becomes a table for a day,
and each task reads a part of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from google.cloud.bigquery import ArrayQueryParameter, Table
from pyspark.sql import DataFrame, SparkSession

from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.names import answer_name, new_job_id
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.staging import Stager, arrow_type
from jobs.destinations.bigquery.tables import demanded_filter
from jobs.destinations.bigquery.unreadable_texts import in_groups
from jobs.destinations.limits import out_of_range
from jobs.destinations.reading import EXPIRY, TableReader
from jobs.destinations.row_values import RowValues
from jobs.destinations.shares import ReadShare, rows_of, share_count
from jobs.schema.python_values import python_values
from jobs.spec.columns import RowColumn
from resources.bigquery import BigQuery
from sql import BIGQUERY, render


def count_rows(bigquery: BigQuery, table: str, present: Table | None) -> int:
    """The rows of a table that exists."""
    text = render("bigquery", "count_rows", table=(bigquery.table_id(table),), whole=demanded_filter(present))
    (row,) = bigquery.read(text, {}, f"bigquery {table}")
    return int(row["rows"])


@dataclass(frozen=True, kw_only=True)
class BigQueryValues(RowValues):
    """Expected values; those of converted types are compared as text, as BigQuery shows them."""

    empty_is_null: ClassVar[bool] = True

    bigquery: BigQuery
    table: BigQueryTable
    own: Sequence[Column]

    def texts(self) -> Mapping[str, str]:
        """Columns that are read as text, with their types in the table."""
        compared_in_python = {c.name for c in self.compared_in_python}
        return {c.name: c.field.field_type for c in self.own if c.conversion and c.name in compared_in_python}

    def compared_type(self, column: RowColumn) -> pa.DataType:
        return arrow_type(next(c for c in self.own if c.name == column.name).staged)

    def stored(self, column: RowColumn, values: pa.Array) -> Sequence[object]:
        own = next(c for c in self.own if c.name == column.name)
        if own.conversion:
            return self._converted(own, values)
        return python_values(Stager([own], [], self.table.sanitize_names).shaped(values, own.staged))

    def _converted(self, column: Column, values: pa.Array) -> list[str | None]:
        """Values as BigQuery converts and shows them, null for those that it refuses; each different value is sent
        once."""
        limits = next(c for c in self.limited if c.label == column.name).limits
        if (beyond := out_of_range(values, limits)) is not None:
            values = pc.if_else(pa.array(beyond), None, values)
        given = pc.unique(values.drop_null()).cast(pa.string()).to_pylist()
        text = render("bigquery", "stored_values", column=column)
        stored = dict[str, str]()
        for part in in_groups(given):
            values_asked = [ArrayQueryParameter("values", "STRING", part)]
            answer = self.bigquery.arrow(text, f"bigquery {self.table.table}", values_asked)
            stored |= dict(zip(part, answer["stored"].to_pylist(), strict=True))
        return [None if value is None else stored[value] for value in values.cast(pa.string()).to_pylist()]


class BigQueryReader(TableReader):
    """Reads by query jobs."""

    def __init__(self, values: BigQueryValues, pipeline: str, present: Table | None) -> None:
        path = (values.bigquery.table_id(values.table.table),)
        super().__init__(values, BIGQUERY, path, whole=demanded_filter(present))
        self._pipeline, self._texts = pipeline, values.texts()
        self._bigquery, self._table, self._where = values.bigquery, values.table, values.table.title

    def answers(self, text: str) -> list[pa.Table]:
        return [self._bigquery.long_arrow(text, self._where, self._table.time_limit_seconds)]

    def present(self) -> list[str]:
        table = self._bigquery.find_table(self._table.table)
        return [field.name for field in table.schema] if table else []

    def reasons_to_lack(self) -> Iterator[str]:
        table = self._bigquery.find_table(self._table.table)
        if table and table.time_partitioning and table.time_partitioning.expiration_ms:
            yield EXPIRY

    def known_count(self) -> int | None:
        table = self._bigquery.find_table(self._table.table)
        if table is None:
            return None
        if table.require_partition_filter:
            # With that filter a count may read, and bill, the partition column at every merge.
            return None if table.num_rows is None else int(table.num_rows)
        return count_rows(self._bigquery, self._table.table, table)

    @contextmanager
    def rows(self, spark: SparkSession, limit: int) -> Iterator[DataFrame]:
        names = [c.name for c in self.values.columns]
        text = self.text("some_rows", columns=names, limit=limit, texts=self._texts)
        answer = answer_name(self._table.table, self._table.intermediate_suffix, self._pipeline)
        try:
            count = self._keep(text, answer)
            most = -(-count // share_count(spark, count)) or 1
            shares = [
                ReadShare(partial(self._bigquery.batches, answer, first, min(most, count - first)), self.values)
                for first in range(0, count, most)
            ]
            yield rows_of(spark, shares, self.values.schema)
        finally:
            self._bigquery.delete_table(answer)

    def _keep(self, text: str, answer: str) -> int:
        """Makes a table of a query's result; returns its number of rows. If the run dies, the table expires."""
        path = (self._bigquery.table_id(answer),)
        kept = render("bigquery", "kept_answer", table=path, answer=text)
        job = self._bigquery.submit_query(new_job_id(self._pipeline, "verify"), kept, {}, {})
        self._bigquery.finish(job, self._table.time_limit_seconds)
        (counted,) = self._bigquery.read(render("bigquery", "count_rows", table=path, whole=None), {}, self._where)
        return int(counted["rows"])

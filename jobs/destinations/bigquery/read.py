"""A BigQuery table's rows, read by queries.

How many rows a table has is asked by a query too: BigQuery answers `COUNT(*)` of a whole table from metadata and bills
nothing. `numRows` of the table itself is the same figure, but an emulator may not know what a MERGE has done to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from google.cloud.bigquery import ArrayQueryParameter

from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.staging import Stager
from jobs.destinations.bigquery.statement import partition_filter
from jobs.destinations.reading import TableReader
from jobs.destinations.refusal import HeldColumn
from jobs.spec.columns import RowColumn
from resources.bigquery import BigQuery
from sql import render

# Values of one question.
_AT_ONCE = 1000


def count_rows(bigquery: BigQuery, table: BigQueryTable, columns: Sequence[Column]) -> int:
    """The rows of a table that exists."""
    path, whole = (bigquery.table_id(table.table),), partition_filter(table, columns)
    text = render("bigquery", "count_rows", table=path, whole=whole)
    (row,) = bigquery.read(text, {}, f"bigquery {table.table}")
    return int(row["rows"])


class BigQueryReader(TableReader):
    """Asks by query jobs; columns of converted types come as the text that BigQuery makes of them."""

    empty_is_null = True

    def __init__(
        self,
        columns: Sequence[RowColumn],
        bigquery: BigQuery,
        table: BigQueryTable,
        own: Sequence[Column],
        held: Sequence[HeldColumn],
    ) -> None:
        super().__init__(columns, table.column_types, held, table.out_of_range)
        self._bigquery, self._table, self._own = bigquery, table, own
        self._where = f"bigquery {table.table}"

    def ask(self, template: str, **arguments: object) -> list[pa.Table]:
        path, whole = (self._bigquery.table_id(self._table.table),), partition_filter(self._table, self._own)
        text = render("bigquery", template, table=path, whole=whole, **arguments)
        return [self._bigquery.arrow(text, self._where)]

    def present(self) -> list[str]:
        table = self._bigquery.find_table(self._table.table)
        return [field.name for field in table.schema] if table else []

    def known_count(self) -> int | None:
        table = self._bigquery.find_table(self._table.table)
        if table is None:
            return None
        if self._table.require_partition_filter:
            # The filter may have the partition column read, and billed, at every merge.
            return None if table.num_rows is None else int(table.num_rows)
        return count_rows(self._bigquery, self._table, self._own)

    def texts(self) -> Mapping[str, str]:
        apart = {c.name for c in self.apart()}
        return {c.name: c.field.field_type for c in self._own if c.conversion and c.name in apart}

    def stored(self, column: RowColumn, values: pa.Array) -> Sequence[object]:
        own = next(c for c in self._own if c.name == column.name)
        if own.conversion:
            return self._converted(own, values)
        return list(Stager([own], [], self._table).shaped(values, own.staged).to_pylist())

    def _converted(self, column: Column, values: pa.Array) -> list[str | None]:
        """As BigQuery converts and shows them; only what differs is sent."""
        given = pc.unique(values.drop_null()).cast(pa.string()).to_pylist()
        text = render("bigquery", "stored_values", column=column)
        stored = dict[str, str]()
        for start in range(0, len(given), _AT_ONCE):
            part = given[start : start + _AT_ONCE]
            answer = self._bigquery.arrow(text, self._where, [ArrayQueryParameter("values", "STRING", part)])
            stored |= dict(zip(part, answer["stored"].to_pylist(), strict=True))
        return [None if value is None else stored[value] for value in values.cast(pa.string()).to_pylist()]

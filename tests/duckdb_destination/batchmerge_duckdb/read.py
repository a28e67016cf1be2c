"""The table's rows, for `verify` and checks."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from batchmerge.jobs.destinations.reading import TableReader
from batchmerge.jobs.destinations.row_values import RowValues
from batchmerge.jobs.spec.columns import RowColumn
from batchmerge.sql import render

from batchmerge_duckdb.database import database
from batchmerge_duckdb.kind import DIALECT
from batchmerge_duckdb.prepare import present_schema
from batchmerge_duckdb.spec import DuckDbConnection


class DuckDbReader(TableReader):
    """Opens the file for each question."""

    def __init__(self, columns: Sequence[RowColumn], connection: DuckDbConnection, table: str) -> None:
        super().__init__(RowValues(columns))
        self._connection, self._table = connection, table

    def ask(self, template: str, **arguments: object) -> list[pa.Table]:
        text = render(DIALECT, template, table=self._table.split("."), **arguments)
        with database(self._connection, f"duckdb {self._table}") as db:
            return [db.execute(text).to_arrow_table()]

    def present(self) -> list[str]:
        with database(self._connection, f"duckdb {self._table}") as db:
            found = present_schema(db, self._table)
        return found.names if found else []

    def known_count(self) -> int:
        return self.count()

"""The table's rows, for `verify` and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from batchmerge.jobs.destinations.reading import TableReader
from batchmerge.jobs.destinations.row_values import RowValues

from batchmerge_duckdb.kind import KIND

if TYPE_CHECKING:
    from batchmerge_duckdb.destination import DuckDbDestination


class DuckDbReader(TableReader):
    """Opens the file for each question."""

    def __init__(self, destination: DuckDbDestination) -> None:
        super().__init__(RowValues(destination.row_columns), KIND.dialect, destination.table.table.split("."))
        self._destination = destination

    def answers(self, text: str) -> list[pa.Table]:
        with self._destination.file(keep=False) as db:
            return [db.execute(text).to_arrow_table()]

    def present(self) -> list[str]:
        found = self._destination.present_schema()
        return found.names if found else []

"""The committed state: one row per pipeline and table in the same file, so that data and state are one transaction."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
from batchmerge.jobs.batch import CommittedState
from batchmerge.jobs.destinations.requirements import require_known_rows, require_same_table
from batchmerge.resources.errors import CommitFailed
from batchmerge.sql import render

from batchmerge_duckdb.database import run
from batchmerge_duckdb.kind import KIND

if TYPE_CHECKING:
    from batchmerge_duckdb.destination import DuckDbDestination


@dataclass(frozen=True)
class TableState:
    """The state of one table of one pipeline, seen through an open file.

    The row has an id that is in the table's comment too: by it a recreated table is distinguished from ours.
    """

    db: duckdb.DuckDBPyConnection
    of: DuckDbDestination

    def run(self, template: str, **values: object) -> list[tuple[Any, ...]]:
        """What a statement about the row gives; nothing where the file has no states yet."""
        key = {"pipeline": self.of.pipeline, "table": self.of.table.table}
        try:
            return self.db.execute(render(KIND.dialect, template), key | values).fetchall()
        except duckdb.CatalogException:
            return []

    def committed(self) -> CommittedState | None:
        ((table_id, text),) = self.run("state_read") or [("", "")]
        committed = CommittedState.from_properties(json.loads(text)) if text else None
        if committed:
            require_same_table(committed, table_id, self.table_id(), self.of.table, self.of.name, self.count)
        return committed

    def table_id(self) -> str | None:
        """The id in the table's comment, empty without one; None where there is no table."""
        found = run(self.db, "table_id", self.of.table.table).fetchone()
        return found[0] if found else None

    def count(self) -> int:
        """The table's rows; none where there is no table."""
        found = run(self.db, "count_rows", self.of.table.table).fetchone() if self.table_id() is not None else None
        return int(found[0]) if found else 0

    def begin(self) -> None:
        """Makes the row of a table that has no batch yet, and marks the table with a new id."""
        if self.table_id():
            require_known_rows(self.count(), self.of.table, self.of.name)
        table_id = uuid.uuid4().hex
        self._mark(table_id)
        self.run("state_begin", table_id=table_id)

    def go_on(self) -> None:
        """Marks the table with the row's id, which a restored one lacks."""
        ((table_id, _),) = self.run("state_read")
        if table_id != self.table_id():
            self._mark(table_id)

    def _mark(self, table_id: str) -> None:
        run(self.db, "state_table", self.of.table.table, table_id=table_id)

    def move(self, before: CommittedState | None, after: CommittedState) -> None:
        """The compare-and-set: of two transactions that move the same row, DuckDB lets one commit.

        Raises:
            CommitFailed: the row is not at `before` any more.
        """
        ids = {"expected": before.commit_id if before else "", "commit_id": after.commit_id}
        if self.run("state_move", state=json.dumps(after.to_properties()), **ids) != [(1,)]:
            raise CommitFailed("another run was faster", where=self.of.name, remedy="plan again from its state")

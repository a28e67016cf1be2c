"""The committed state: one row per pipeline and table in the same file, so that data and state are one transaction."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

import duckdb
from batchmerge.jobs.batch import CommittedState
from batchmerge.resources.errors import CommitFailed, InvariantBroken, TableReplaced
from batchmerge.sql import render

from batchmerge_duckdb.kind import DIALECT


@dataclass(frozen=True)
class StateRow:
    """What the row says; `table_id` is in the table's comment too, by which a recreated one is told from ours."""

    table_id: str
    committed: CommittedState | None


@dataclass(frozen=True)
class TableState:
    """The state of one table of one pipeline, seen through an open file."""

    db: duckdb.DuckDBPyConnection
    pipeline: str
    table: str
    where: str

    def run(self, template: str, **values: object) -> list[tuple[object, ...]]:
        text = render(DIALECT, template)
        return self.db.execute(text, {"pipeline": self.pipeline, "table": self.table, **values}).fetchall()

    def read(self) -> StateRow | None:
        """The row; None where the table was never prepared.

        Raises:
            TableReplaced: it has batches, and its table was dropped or made again.
        """
        found = self.run("state_read") if self.exists() else []
        if not found:
            return None
        table_id, state = str(found[0][0]), str(found[0][1])
        row = StateRow(table_id, CommittedState.from_properties(json.loads(state)) if state else None)
        present = self.table_id()
        if row.committed and present != table_id:
            raise TableReplaced(
                "the table was dropped" if present is None else "the table was dropped and created again",
                where=self.where,
                remedy=f"restore it; or fill it from the landed batches: `batchmerge offsets forget {self.pipeline} "
                f"'{self.where}'`",
            )
        return row

    def exists(self) -> bool:
        """Some table of this file was prepared before."""
        return bool(self.db.execute("FROM duckdb_tables() WHERE table_name = 'batchmerge_state'").fetchall())

    def others(self) -> list[str]:
        """Other pipelines that have a row of the table."""
        return [str(pipeline) for (pipeline,) in self.run("state_others")] if self.exists() else []

    def table_id(self) -> str | None:
        """The id in the table's comment, empty without one; None where there is no table."""
        schema, name = self.table.split(".")
        query = "SELECT coalesce(comment, '') FROM duckdb_tables() WHERE schema_name = $schema AND table_name = $name"
        found = self.db.execute(query, {"schema": schema, "name": name}).fetchone()
        return str(found[0]) if found else None

    def begin(self, rows: int) -> None:
        """Makes the row of a table that has no batch yet, and marks the table with a new id.

        Args:
            rows: that are there, and would come twice if they are ours.

        Raises:
            InvariantBroken: they are: the table has an id.
        """
        if rows and self.table_id():
            raise InvariantBroken(
                f"the table has {rows} rows, and its row in `batchmerge_state` is gone",
                where=self.where,
                remedy="bring the row back, or drop the table: the next run fills a new one from what is landed",
            )
        table_id = uuid.uuid4().hex
        self.db.execute(render(DIALECT, "state_table"))
        self.db.execute(render(DIALECT, "mark_table", table=self.table.split("."), table_id=table_id))
        self.run("state_begin", table_id=table_id)

    def move(self, before: CommittedState | None, after: CommittedState) -> None:
        """The compare-and-set: of two transactions that move the same row, DuckDB lets one commit.

        Raises:
            CommitFailed: the row is not at `before` any more.
        """
        ids = {"expected": before.commit_id if before else "", "commit_id": after.commit_id}
        if self.run("state_move", state=json.dumps(after.to_properties()), **ids) != [(1,)]:
            raise CommitFailed("another run was faster", where=self.where, remedy="plan again from its state")

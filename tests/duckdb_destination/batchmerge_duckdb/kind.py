"""DuckDB as a kind of destination: what the entry point names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchmerge.jobs.destinations.base import Destination
from batchmerge.jobs.destinations.kind import Capabilities, Kind
from batchmerge.resources.connections import Connections
from batchmerge.sql import Dialect, render

from batchmerge_duckdb.spec import DuckDbConnection, DuckDbTable

if TYPE_CHECKING:
    from batchmerge.jobs.spec.pipeline import PipelineSpec

DIALECT = Dialect("duckdb", Path(__file__).parent / "sql", '"', (('"', '""'),))


class DuckDbKind(Kind[DuckDbTable]):
    """Tables of one file, written by this process."""

    name = "duckdb"
    title = "DuckDB"
    table = DuckDbTable
    connection = DuckDbConnection
    capabilities = Capabilities(
        modes=frozenset({"append", "upsert", "upsert_delete"}),
        commit="one transaction of the file: data and state together, moved only from the committed one",
        reference="commit id",
        asset_kinds=frozenset({"duckdb"}),
        truncates=True,
    )
    dialect = DIALECT
    failpoints = ("duckdb.written", "duckdb.committed")

    def open(self, pipeline: str, spec: PipelineSpec, table: DuckDbTable, connections: Connections) -> Destination:
        from batchmerge_duckdb.destination import DuckDbDestination

        return DuckDbDestination(pipeline, spec, table, connections.get(table.connection, DuckDbConnection))

    def statement(self, spec: PipelineSpec, table: DuckDbTable) -> str:
        return self.text("append" if table.mode == "append" else "merge", spec, table)

    def text(
        self,
        template: str,
        spec: PipelineSpec,
        table: DuckDbTable,
        tombstones: str | None = None,
        missing: bool = False,
    ) -> str:
        """A statement of a merge.

        Args:
            missing: append only the records that the table lacks.
        """
        columns = self.columns(spec, table)
        return render(
            DIALECT,
            template,
            table=table.table.split("."),
            changes="changes",
            columns=[column.name for column in columns],
            keys=[column.name for column in columns if column.is_key],
            order_by=spec.changes.ordered_by,
            tombstones=tombstones.split(".") if tombstones else None,
            missing=missing,
        )


KIND = DuckDbKind()

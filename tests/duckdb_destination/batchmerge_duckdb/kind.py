"""DuckDB as a kind of destination: what the entry point names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchmerge.jobs.destinations.base import Destination
from batchmerge.jobs.destinations.kind import Capabilities, Kind
from batchmerge.resources.connections import Connections
from batchmerge.sql import Dialect

from batchmerge_duckdb.spec import DuckDbConnection, DuckDbTable

if TYPE_CHECKING:
    from batchmerge.jobs.spec.pipeline import PipelineSpec


class DuckDbKind(Kind[DuckDbTable]):
    """Tables of one file, written by this process. Its statements are the templates in `sql`."""

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
    dialect = Dialect("duckdb", Path(__file__).parent / "sql", '"', (('"', '""'),))
    failpoints = ("duckdb.written", "duckdb.committed")

    def open(self, pipeline: str, spec: PipelineSpec, table: DuckDbTable, connections: Connections) -> Destination:
        from batchmerge_duckdb.destination import DuckDbDestination

        return DuckDbDestination(pipeline, spec, table, connections.get(table.connection, DuckDbConnection))


KIND = DuckDbKind()

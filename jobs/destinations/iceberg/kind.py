"""Iceberg as a kind of destination."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobs.destinations.base import Destination
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.kind import Capabilities, Kind
from resources.connections import Connections, IcebergConnection
from sql import SPARK, render

if TYPE_CHECKING:
    from jobs.connect_import.sink import Sink
    from jobs.spec.columns import RowColumn
    from jobs.spec.pipeline import PipelineSpec
    from resources.config_files.mistakes import Mistake

_ELSE = "-- Where the table takes position deletes, the same is written without a MERGE."


class IcebergKind(Kind[IcebergTable]):
    """Tables that Spark writes and pyiceberg commits."""

    name = "iceberg"
    title = "Iceberg"
    table = IcebergTable
    connection = IcebergConnection
    capabilities = Capabilities(
        modes=frozenset({"append", "upsert", "upsert_delete", "delete"}),
        commit="one conditional commit of the catalog: data, state and offsets together",
        reference="snapshot id",
        asset_kinds=frozenset({"iceberg", "spark"}),
        keeps_unchanged_columns=True,
        finds_rows=True,
        counts_keys_at_merge=True,
        commits_together=True,
        tells_topics_apart=True,
        truncates=True,
        state_in_table=True,
        rolls_back=True,
        rows_on_workers=True,
        upkeep=True,
    )
    dialect = SPARK

    def open(self, pipeline: str, spec: PipelineSpec, table: IcebergTable, connections: Connections) -> Destination:
        from jobs.destinations.iceberg.destination import IcebergDestination
        from resources.iceberg import IcebergCatalog

        catalog = connections.opened(table.connection, IcebergConnection, IcebergCatalog)
        return IcebergDestination(pipeline, spec, table, catalog)

    def columns(self, spec: PipelineSpec, table: IcebergTable) -> list[RowColumn]:
        from jobs.destinations.iceberg.columns import table_columns

        return table_columns(spec, table)

    def kept_deletes(self, spec: PipelineSpec, table: IcebergTable) -> str | None:
        """Each branch has its own table of kept deletes: a key that is deleted on one may exist on another."""
        name = super().kept_deletes(spec, table)
        branch = re.sub(r"[^A-Za-z0-9_-]", lambda sign: f"_{ord(sign[0]):x}", table.branch)
        return name if name is None or branch == "main" else f"{name}__{branch}"

    def mistakes(self, spec: PipelineSpec, table: IcebergTable) -> Iterator[Mistake]:
        from jobs.destinations.iceberg.rules import mistakes

        return mistakes(spec, table)

    def statement(self, spec: PipelineSpec, table: IcebergTable) -> str:
        """The merge statement; empty for mode append, where data files are appended."""
        key = spec.changes.key
        if table.mode == "append" or key is None:
            return ""
        text = render(
            self.dialect,
            "merge",
            target=(table.connection, *table.table.split("."), "branch_…"),
            changes=["last_changes"],
            keys=tuple(key.columns),
            columns=[c.name for c in self.columns(spec, table)],
            mode=table.mode,
            named=False,
            null_safe=key.nulls == "match",
            bounded={},
            order_by=spec.changes.ordered_by,
            unchanged=(),
            truncated_below=None,
        )
        return text if table.write == "copy_on_write" else f"{text}\n{_ELSE}"

    def sink(self) -> type[Sink]:
        from jobs.destinations.iceberg.connect_sink import IcebergSink

        return IcebergSink


KIND = IcebergKind()

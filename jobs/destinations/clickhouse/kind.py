"""ClickHouse as a kind of destination."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobs.destinations.base import Destination
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.kind import Capabilities, Kind
from resources.connections import ClickHouseConnection, Connections
from sql import CLICKHOUSE

if TYPE_CHECKING:
    from jobs.connect_import.sink import Sink
    from jobs.spec.pipeline import PipelineSpec
    from resources.config_files.mistakes import Mistake


class ClickHouseKind(Kind[ClickHouseTable]):
    """Tables that are written by inserts over HTTP, with leases in KeeperMap."""

    name = "clickhouse"
    title = "ClickHouse"
    table = ClickHouseTable
    connection = ClickHouseConnection
    capabilities = Capabilities(
        modes=frozenset({"append", "upsert", "upsert_delete"}),
        commit="fenced, deduplicated inserts in chunks, several landed batches in a step, under a lease in KeeperMap",
        reference="query id",
        asset_kinds=frozenset({"clickhouse"}),
        refuses=True,
        nullable_nested=False,
        tells_topics_apart=True,
        leases=True,
        truncates=True,
        orders_by_text=False,
        rows_on_workers=True,
        upkeep=True,
    )
    dialect = CLICKHOUSE
    # `taken_over` only after a run that left its lease behind.
    failpoints = (
        "merge.begun",
        "clickhouse.leased",
        "clickhouse.taken_over",
        "clickhouse.before",
        "clickhouse.inserted",
        "clickhouse.after",
        "clickhouse.committed",
        "merge.published",
    )

    def open(self, pipeline: str, spec: PipelineSpec, table: ClickHouseTable, connections: Connections) -> Destination:
        from jobs.destinations.clickhouse.destination import ClickHouseDestination

        connection = connections.get(table.connection, ClickHouseConnection)
        return ClickHouseDestination(pipeline, spec, table, connection)

    def mistakes(self, spec: PipelineSpec, table: ClickHouseTable) -> Iterator[Mistake]:
        from jobs.destinations.clickhouse.rules import mistakes

        return mistakes(spec, table)

    def warnings(self, spec: PipelineSpec, table: ClickHouseTable) -> Iterator[str]:
        from jobs.destinations.clickhouse.engines import engine_warnings
        from jobs.destinations.clickhouse.limits import limited_columns
        from jobs.destinations.refusal import certain

        if table.mode == "append":
            yield from engine_warnings(table.engine or "")
        yield from certain(limited_columns(spec, table))

    def statement(self, spec: PipelineSpec, table: ClickHouseTable) -> str:
        from jobs.destinations.clickhouse.statements import Statements
        from jobs.destinations.clickhouse.wanted_table import layout_of

        layout = layout_of(spec, table)
        return Statements(layout, (layout.path[0], "…")).insert()

    def sink(self) -> type[Sink]:
        from jobs.destinations.clickhouse.connect_sink import ClickHouseSink

        return ClickHouseSink


KIND = ClickHouseKind()

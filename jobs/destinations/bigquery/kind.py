"""BigQuery as a kind of destination."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobs.destinations.base import Destination
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.kind import Capabilities, Kind
from resources.connections import BigQueryConnection, Connections
from sql import BIGQUERY

if TYPE_CHECKING:
    from jobs.connect_import.sink import Sink
    from jobs.spec.columns import RowColumn
    from jobs.spec.pipeline import PipelineSpec
    from resources.config_files.mistakes import Mistake


class BigQueryKind(Kind[BigQueryTable]):
    """Tables that are written by load and query jobs with deterministic ids."""

    name = "bigquery"
    title = "BigQuery"
    table = BigQueryTable
    connection = BigQueryConnection
    capabilities = Capabilities(
        modes=frozenset({"append", "upsert", "upsert_delete", "delete"}),
        commit="one job with a deterministic id, then the state row, moved only from the committed one",
        reference="job id",
        asset_kinds=frozenset({"bigquery"}),
        tells_topics_apart=True,
        struct_keys=True,
        keeps_unchanged_columns=True,
        refuses=True,
        truncates=True,
        rows_on_workers=True,
        upkeep=True,
        loads_landed_files=True,
    )
    dialect = BIGQUERY
    # One after each step of a flush that can leave something behind (`jobs.destinations.bigquery.merge`).
    failpoints = (
        "bigquery.begun",
        "bigquery.staged",
        "bigquery.loaded",
        "bigquery.submitted",
        "bigquery.merged",
        "bigquery.moved",
        "bigquery.cleaned",
    )

    def open(self, pipeline: str, spec: PipelineSpec, table: BigQueryTable, connections: Connections) -> Destination:
        from jobs.destinations.bigquery.destination import BigQueryDestination

        connection = connections.get(table.connection, BigQueryConnection)
        return BigQueryDestination(pipeline, spec, table, connection)

    def columns(self, spec: PipelineSpec, table: BigQueryTable) -> list[RowColumn]:
        from jobs.destinations.bigquery.columns import renamed_columns

        return renamed_columns(spec, table)

    def mistakes(self, spec: PipelineSpec, table: BigQueryTable) -> Iterator[Mistake]:
        from jobs.destinations.bigquery.rules import mistakes

        return mistakes(spec, table)

    def warnings(self, spec: PipelineSpec, table: BigQueryTable) -> Iterator[str]:
        from jobs.destinations.bigquery.columns import destination_columns
        from jobs.destinations.bigquery.limits import limited_columns
        from jobs.destinations.bigquery.rules import too_many_loads
        from jobs.destinations.refusal import certain

        yield from too_many_loads(spec, table)
        yield from certain(limited_columns(spec, table, destination_columns(spec, table)))

    def statement(self, spec: PipelineSpec, table: BigQueryTable) -> str:
        from jobs.destinations.bigquery.columns import destination_columns
        from jobs.destinations.bigquery.direct_load import takes_landed_rows
        from jobs.destinations.bigquery.names import staging_prefix
        from jobs.destinations.bigquery.statements import statement

        columns = destination_columns(spec, table)
        staging_table = f"{staging_prefix(table.table, table.intermediate_suffix)}…"
        says_op = takes_landed_rows(spec, table, columns)
        return statement(spec, table, columns, table.table, staging_table, says_op).unbounded().text()

    def sink(self) -> type[Sink]:
        from jobs.destinations.bigquery.connect_sink import BigQuerySink

        return BigQuerySink


KIND = BigQueryKind()

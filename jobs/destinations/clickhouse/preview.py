"""The insert into a ClickHouse table, as far as the pipeline file alone tells it: for plans and people."""

from __future__ import annotations

from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.tables import layout_of
from jobs.spec.pipeline import PipelineSpec


def statement(spec: PipelineSpec, table: ClickHouseTable) -> str:
    """The names that a run makes stand there as `…`."""
    layout = layout_of(spec, table)
    return Statements(layout, (layout.path[0], "…")).insert()

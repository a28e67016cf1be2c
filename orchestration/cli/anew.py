"""Forgetting a pipeline's tables with their committed states, so that it begins anew. Only for the local services."""

from __future__ import annotations

from jobs.destinations.base import Destination
from jobs.destinations.bigquery.destination import BigQueryDestination
from jobs.destinations.bigquery.state import STATE_TABLE
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.pipeline import Pipeline
from sql import render


def forget_tables(pipeline: Pipeline) -> bool:
    """Drops the intermediate table and every destination table; true if there was one."""
    found = [pipeline.intermediate.catalog.drop(pipeline.intermediate.identifier)]
    return any([*found, *(_forget(pipeline, destination) for destination in pipeline.destinations())])


def _forget(pipeline: Pipeline, destination: Destination) -> bool:
    if isinstance(destination, IcebergDestination):
        return destination.catalog.drop(destination.table.table)
    if isinstance(destination, ClickHouseDestination):
        return _forget_clickhouse(destination)
    assert isinstance(destination, BigQueryDestination)
    return _forget_bigquery(pipeline.name, destination)


def _forget_clickhouse(destination: ClickHouseDestination) -> bool:
    leases = destination.leases()
    for shard in destination.shards:
        for table in (destination.layout.path, shard.statements.dead_letters):
            shard.server.execute(render("clickhouse", "table_drop", table=table))
        if leases:
            forget = render("clickhouse", "state_forget", table=shard.store.table)
            shard.server.execute(forget, {"prefix": shard.store.name})
    return bool(leases)


def _forget_bigquery(pipeline: str, destination: BigQueryDestination) -> bool:
    row, table = destination.state.read(), destination.table.table
    destination.bigquery.delete_table(table)
    if row is None:
        return False
    destination.bigquery.delete_table(row.intermediate)
    state_table = destination.bigquery.table_id(f"{table.split('.', maxsplit=1)[0]}.{STATE_TABLE}")
    text = render("bigquery", "state_forget", table=state_table)
    destination.bigquery.change(text, {"pipeline": pipeline, "table_name": table}, destination.name)
    return True

"""Dropping a pipeline's tables with their committed states, so that it begins anew. Only for the local services."""

from __future__ import annotations

from jobs.destinations.base import Destination
from jobs.destinations.bigquery.destination import BigQueryDestination
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.pipeline import Pipeline
from sql import render


def forget_tables(pipeline: Pipeline) -> bool:
    """Drops the intermediate table and every destination table; true if there was one."""
    found = [pipeline.intermediate.catalog.drop(pipeline.intermediate.identifier)]
    for destination in pipeline.destinations():
        found += [_drop(destination), destination.forget()]
    return any(found)


def _drop(destination: Destination) -> bool:
    if isinstance(destination, IcebergDestination):
        return destination.catalog.drop(destination.table.table)
    if isinstance(destination, ClickHouseDestination):
        for shard in destination.shards:
            for table in (destination.layout.path, shard.statements.dead_letters):
                shard.server.execute(render("clickhouse", "table_drop", table=table))
        return False
    assert isinstance(destination, BigQueryDestination)
    destination.bigquery.delete_table(destination.table.table)
    return False

"""Maintenance of a pipeline's tables; the pipeline file switches each task on or off."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from jobs.destinations.base import Destination
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.maintenance.report import Done, do
from jobs.maintenance.retention import retire
from jobs.maintenance.upkeep import keep_up
from jobs.pipeline import Pipeline

LANDING = "maintenance of landing"


def maintain_landing(pipeline: Pipeline) -> Iterator[Done]:
    """Maintains the intermediate table."""
    table, options = pipeline.intermediate, pipeline.spec.maintenance
    maintained = MaintainedTable(
        pipeline=pipeline.name,
        catalog=table.catalog,
        identifier=table.identifier,
        branch="main",
        merged=False,
        sort_by=("batchNumber", "i"),
        attempt_seconds=pipeline.spec.batch.time_limit_seconds,
    )
    if not maintained.exists():
        return
    spark = pipeline.spark(LANDING, table.catalog)
    if options.landed.enabled:
        yield do("landed", maintained.identifier, partial(retire, spark, pipeline, maintained, options.landed))
    known = table.landed().batches
    yield from keep_up(spark, maintained, options, known[0].snapshot_id if known else None)


def maintain_table(pipeline: Pipeline, destination: Destination) -> Iterator[Done]:
    """Maintains a destination table, in any system."""
    yield from destination.maintain(lambda: pipeline.spark(maintenance_role(destination), destination))


def maintenance_role(destination: Destination) -> str:
    """The Spark session of a table's maintenance: not the one of its merges, which a newer run interrupts."""
    return f"maintenance of {destination.name}"

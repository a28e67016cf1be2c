"""Is there one row per key in a destination table? Asked of the table itself, after a merge."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.batch import LandedBatch
from jobs.destinations.base import Destination
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.pipeline import Pipeline
from resources.spark import spark_errors
from sql import render


def duplicate_keys(pipeline: Pipeline, destination: Destination, batches: Sequence[LandedBatch]) -> int:
    """How many of the keys that these batches touched have more than one row."""
    key = pipeline.spec.changes.key
    if not batches or key is None or not isinstance(destination, IcebergDestination):
        return 0
    branch = [] if destination.table.branch == "main" else [f"branch_{destination.table.branch}"]
    query = render(
        "spark",
        "duplicate_keys",
        target=(destination.catalog.name, *destination.table.table.split("."), *branch),
        landed=pipeline.intermediate.path,
        keys=key.columns,
    )
    with spark_errors(destination.name):
        spark = pipeline.merge_context(destination).spark
        found = spark.sql(query, args={"first": batches[0].number, "last": batches[-1].number}).first()
    return int(found["duplicates"]) if found else 0

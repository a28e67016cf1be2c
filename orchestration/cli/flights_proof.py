"""Reads the demo's tables by their own systems, and compares them with a result that is computed independently."""

from __future__ import annotations

import pyarrow as pa

from jobs.destinations.base import Destination
from jobs.pipeline import Pipeline
from resources.local.flights.columns import KEY, TABLE_COLUMNS


def held(pipeline: Pipeline, destination: Destination) -> pa.Table:
    """All rows of a table, in its declared columns."""
    spark = pipeline.merge_context(destination).spark
    with destination.read(lambda: spark).rows(spark, 0) as found:
        return found.toArrow()


def is_same(found: pa.Table, expected: pa.Table) -> bool:
    """Whether all values of all rows are the same, in any order of rows and under any system's names of types."""
    ordered = found.select(list(TABLE_COLUMNS)).cast(expected.schema).sort_by([(name, "ascending") for name in KEY])
    return bool(ordered.combine_chunks().equals(expected.combine_chunks()))

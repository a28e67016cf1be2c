"""The demo's tables, as their systems give them, against an answer that is computed by other means."""

from __future__ import annotations

import pyarrow as pa

from jobs.destinations.base import Destination
from jobs.pipeline import Pipeline
from resources.local.flights.columns import KEY, TABLE_COLUMNS


def held(pipeline: Pipeline, destination: Destination) -> pa.Table:
    """All rows of a table, in its declared columns."""
    spark = pipeline.merge_context(destination).spark
    with destination.read(spark).rows(spark, 0) as found:
        return found.toArrow()


def is_same(found: pa.Table, expected: pa.Table) -> bool:
    """Every value of every row, whatever order rows come in and however a system calls its types."""
    ordered = found.select(list(TABLE_COLUMNS)).cast(expected.schema).sort_by([(name, "ascending") for name in KEY])
    return bool(ordered.combine_chunks().equals(expected.combine_chunks()))

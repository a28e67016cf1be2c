"""Temporary Spark views for one piece of work, in a session that others use too (`jobs.members`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession


@contextmanager
def own_views(spark: SparkSession, *names: str) -> Iterator[list[str]]:
    """Unique names for views. At the end the views are dropped, together with their cached data."""
    views = [f"batchmerge_{name}_{uuid.uuid4().hex}" for name in names]
    try:
        yield views
    finally:
        for view in views:
            spark.catalog.dropTempView(view)  # also drops its cached data


def cached(rows: DataFrame, view: str) -> DataFrame:
    """These rows under the name of a view: the first query computes them, and others read what it has found."""
    spark = rows.sparkSession
    rows.createTempView(view)
    spark.catalog.cacheTable(view)
    return spark.table(view)

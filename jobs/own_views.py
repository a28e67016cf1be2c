"""Temporary views of Spark's for one piece of work, where others work in the same session (`jobs.members`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def own_views(spark: SparkSession, *names: str) -> Iterator[list[str]]:
    """Names for views that nobody else uses. Afterwards the views are gone, and what Spark has cached of them."""
    views = [f"batchmerge_{name}_{uuid.uuid4().hex}" for name in names]
    try:
        yield views
    finally:
        for view in views:
            spark.catalog.dropTempView(view)  # and what is cached of it

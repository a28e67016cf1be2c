"""Checks that a destination table still has exactly the columns, and the layout, that the pipeline file declares."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from jobs.destinations.base import Destination
from resources.errors import BatchmergeError


def schema_drift(destination: Destination, session: Callable[[], SparkSession]) -> list[str]:
    """Changes of the columns by others since the last merge, and those that the next merge will refuse."""
    try:
        missing = destination.prepare(dry_run=True)
        reader = destination.read(session)
        declared = {c.name.lower() for c in reader.values.columns}
        foreign = [name for name in reader.present() if name.lower() not in declared]
        layout = destination.layout_differences()
    except BatchmergeError as problem:
        return [str(problem)]
    return [*missing, *(f"column {name} is in the table and not declared" for name in foreign), *layout]

"""Does a destination table still have the columns that the pipeline file declares, and no others?"""

from __future__ import annotations

from pyspark.sql import SparkSession

from jobs.destinations.base import Destination
from resources.errors import BatchmergeError


def schema_drift(destination: Destination, spark: SparkSession) -> list[str]:
    """What somebody else has changed since the last merge prepared the table; also what will be refused next time."""
    try:
        missing = destination.prepare(dry_run=True)
        reader = destination.read(spark)
        declared = {c.name.lower() for c in reader.values.columns}
        foreign = [name for name in reader.present() if name.lower() not in declared]
    except BatchmergeError as problem:
        return [str(problem)]
    return [*missing, *(f"column {name} is in the table and not declared" for name in foreign)]

"""Files below a table's location that no snapshot has: what dead and refused attempts wrote."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from jobs.maintenance.maintained_table import MaintainedTable
from jobs.spec.maintenance import Orphans
from resources.spark import spark_errors
from sql import render

# Listed by Hadoop, in parallel; anything else by the catalog's own file IO, which needs no Hadoop settings for it.
_FILE_SYSTEMS = ("", "file", "hdfs")


def remove_orphans(spark: SparkSession, maintained: MaintainedTable, options: Orphans) -> Mapping[str, int]:
    """Removes those that are old enough to be nobody's: a running attempt's files are younger."""
    instant = datetime.now(UTC) - timedelta(hours=options.older_than_hours)
    text = render(
        "spark",
        "remove_orphan_files",
        catalog=maintained.catalog.name,
        table=tuple(maintained.identifier.split(".")),
        older_than=f"{instant:%Y-%m-%d %H:%M:%S}",
        by_prefix=urlparse(maintained.load().location()).scheme not in _FILE_SYSTEMS,
    )
    with spark_errors(maintained.identifier):
        return {"orphan files removed": spark.sql(text).count()}

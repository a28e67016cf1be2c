"""Maintenance of an Iceberg destination: its table, and the table of kept deletes if it has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

from jobs.destinations.iceberg.spec import IcebergTable
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.maintenance.report import Done
from jobs.maintenance.upkeep import keep_up
from jobs.spec.maintenance import Maintenance
from resources.iceberg import IcebergCatalog


def maintain(
    pipeline: str,
    catalog: IcebergCatalog,
    table: IcebergTable,
    kept_deletes: str | None,
    options: Maintenance,
    session: Callable[[], SparkSession],
) -> Iterator[Done]:
    """The tasks of `jobs.maintenance` on both tables; nothing on a table without a batch."""
    for identifier, branch in ((table.table, table.branch), (kept_deletes, "main")):
        if identifier is None:
            continue
        maintained = MaintainedTable(
            pipeline=pipeline,
            catalog=catalog,
            identifier=identifier,
            branch=branch,
            merged=table.needs_key,
            sort_by=(),
            attempt_seconds=table.time_limit_seconds,
            has_states=identifier == table.table,
        )
        if maintained.exists():
            yield from keep_up(session(), maintained, options)

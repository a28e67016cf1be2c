"""All maintenance tasks of an Iceberg table (the intermediate table or a destination), one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pyspark.sql import SparkSession

from jobs.maintenance.compaction import compact
from jobs.maintenance.leftovers import remove_branches, remove_orphans
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.maintenance.manifests import rewrite_manifests
from jobs.maintenance.report import Done, do
from jobs.maintenance.snapshots import expire
from jobs.spec.maintenance import Maintenance

Task = tuple[str, bool, Callable[[], Mapping[str, int]]]


def keep_up(
    spark: SparkSession, maintained: MaintainedTable, options: Maintenance, oldest_kept: int | None = None
) -> Iterator[Done]:
    """Runs the tasks that the options have not switched off.

    Args:
        oldest_kept: snapshot of the oldest landed batch that is still known; None for a table without landed batches.
    """
    yield from done(
        maintained.identifier,
        [
            ("branches", options.orphans.enabled, lambda: remove_branches(maintained, options.orphans)),
            ("compaction", options.compaction.enabled, lambda: compact(spark, maintained, options.compaction)),
            ("manifests", options.manifests.enabled, lambda: rewrite_manifests(spark, maintained, options.manifests)),
            (
                "snapshots",
                options.snapshots.enabled,
                lambda: expire(spark, maintained, options.snapshots, options.orphans, oldest_kept),
            ),
            ("orphans", options.orphans.enabled, lambda: remove_orphans(spark, maintained, options.orphans)),
        ],
    )


def done(table: str, tasks: list[Task]) -> Iterator[Done]:
    """Runs the enabled tasks, one after the other."""
    for name, enabled, work in tasks:
        if enabled:
            yield do(name, table, work)

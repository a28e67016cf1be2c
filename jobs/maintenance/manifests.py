"""Many small manifests, one per commit, become few: planning a read opens them all."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from jobs.maintenance.maintained_table import MaintainedTable
from jobs.spec.maintenance import Manifests
from resources.iceberg_errors import catalog_errors


def rewrite_manifests(spark: SparkSession, maintained: MaintainedTable, options: Manifests) -> Mapping[str, int]:
    """Only where there are enough of them: it is one more commit on the table.

    Iceberg rewrites those of `main` alone, so a table that is published to another branch is left as it is.

    Raises:
        GaveWay, CommitFailed: the table is being changed; nothing was published.
    """
    before = _count(maintained)
    if before < options.min_count or maintained.branch != "main":
        return {"manifests": before}
    maintained.give_way()
    maintained.procedure(spark, "rewrite_manifests")
    return {"manifests before": before, "manifests after": _count(maintained)}


def _count(maintained: MaintainedTable) -> int:
    """Of those that hold files: one that only tells of removed ones goes with the next commit."""
    table = maintained.load()
    with catalog_errors(maintained.identifier):
        snapshot = table.snapshot_by_name(maintained.branch)
        found = snapshot.manifests(table.io) if snapshot else []
        return sum(manifest.has_added_files() or manifest.has_existing_files() for manifest in found)

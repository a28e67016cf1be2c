"""Rewrites many small manifests, one per commit, as few, since planning a read opens all of them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from jobs.maintenance.maintained_table import MaintainedTable
from jobs.spec.maintenance import Manifests
from resources.iceberg_errors import catalog_errors


def rewrite_manifests(spark: SparkSession, maintained: MaintainedTable, options: Manifests) -> Mapping[str, int]:
    """Rewrites the manifests if there are enough of them, since it is one more commit on the table.

    Iceberg rewrites only those of `main`, so a table that is published to another branch is skipped.

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
    """The number of manifests with live files; one with only removed files disappears with the next commit."""
    table = maintained.load()
    with catalog_errors(maintained.identifier):
        snapshot = table.snapshot_by_name(maintained.branch)
        found = snapshot.manifests(table.io) if snapshot else []
        return sum(manifest.has_added_files() or manifest.has_existing_files() for manifest in found)

"""All maintenance tasks of an Iceberg table (the intermediate table or a destination), one after the other.

Compaction and the expiry of snapshots are in modules of their own. What dead runs left is removed: branches of
attempts, and files that no snapshot has. Those of live runs are younger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import urlparse

from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate
from pyspark.sql import SparkSession

from jobs.iceberg.branches import begun_before
from jobs.maintenance.compaction import compact
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.maintenance.report import Done, do
from jobs.maintenance.snapshots import expire
from jobs.spec.maintenance import Maintenance, Manifests, Orphans
from resources.iceberg_errors import catalog_errors

# File systems that Hadoop lists, in parallel; others are listed by the catalog's file IO, without Hadoop settings.
_FILE_SYSTEMS = ("", "file", "hdfs")


def keep_up(
    spark: SparkSession, maintained: MaintainedTable, options: Maintenance, oldest_kept: int | None = None
) -> Iterator[Done]:
    """Runs the tasks that the options have not switched off.

    Args:
        oldest_kept: snapshot of the oldest landed batch that is still known; None for a table without landed batches.
    """
    tasks: list[tuple[str, bool, Callable[[], Mapping[str, int]]]] = [
        ("branches", options.orphans.enabled, lambda: remove_branches(maintained, options.orphans)),
        ("compaction", options.compaction.enabled, lambda: compact(spark, maintained, options.compaction)),
        ("manifests", options.manifests.enabled, lambda: rewrite_manifests(spark, maintained, options.manifests)),
        (
            "snapshots",
            options.snapshots.enabled,
            lambda: expire(spark, maintained, options.snapshots, options.orphans, oldest_kept),
        ),
        ("orphans", options.orphans.enabled, lambda: remove_orphans(spark, maintained, options.orphans)),
    ]
    for name, enabled, work in tasks:
        if enabled:
            yield do(name, maintained.identifier, work)


def remove_branches(maintained: MaintainedTable, options: Orphans) -> Mapping[str, int]:
    """Removes old branches in one commit; their attempts can no longer be published."""
    table = maintained.load()
    refs = table.metadata.refs
    dead = begun_before(refs, _nobodys_before(options))
    if dead:
        still = [AssertRefSnapshotId(ref=name, snapshot_id=refs[name].snapshot_id) for name in dead]
        maintained.catalog.commit(table, still, [RemoveSnapshotRefUpdate(ref_name=name) for name in dead])
    return {"branches removed": len(dead)}


def remove_orphans(spark: SparkSession, maintained: MaintainedTable, options: Orphans) -> Mapping[str, int]:
    """Removes the files below the table's location that no snapshot has.

    Raises:
        GaveWay: no file of the table may be deleted.
    """
    maintained.require_deletable()
    removed = maintained.procedure(
        spark,
        "remove_orphan_files",
        older_than=f"{_nobodys_before(options):%Y-%m-%d %H:%M:%S}",
        by_prefix=urlparse(maintained.load().location()).scheme not in _FILE_SYSTEMS,
    )
    return {"orphan files removed": len(removed)}


def _nobodys_before(options: Orphans) -> datetime:
    return datetime.now(UTC) - timedelta(hours=options.older_than_hours)


def rewrite_manifests(spark: SparkSession, maintained: MaintainedTable, options: Manifests) -> Mapping[str, int]:
    """Rewrites many small manifests, one per commit, as few, since planning a read opens all of them. Only if there are
    enough of them, since it is one more commit on the table.

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

"""Expiry of snapshots: decides snapshot by snapshot, because those that carry states have to be kept.

Iceberg's expiry by age alone would remove ancestors of a branch's head that the pipeline still needs: the landed
batches of an intermediate table, and the newest batch of a destination table below other writers' commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import SparkSession

from jobs.batch import PREFIX
from jobs.iceberg.history import ancestors
from jobs.maintenance.maintained_table import MaintainedTable, milliseconds_ago
from jobs.spec.maintenance import Orphans, Snapshots

# The most ids in one statement.
_AT_ONCE = 500


def expirable(
    metadata: TableMetadata,
    branch: str,
    before: int,
    keep_last: int,
    oldest_kept: int | None,
    has_states: bool = True,
) -> list[int]:
    """Snapshots of a branch that may be expired, oldest first; never a branch's head or a tagged one.

    Args:
        before: only snapshots that are older than this, in milliseconds.
        keep_last: the number of newest snapshots that the branch keeps, however old.
        oldest_kept: the branch keeps all from its head back to this snapshot; None: to its newest batch.
        has_states: False: there are no batches, and so nothing that has to stay readable.
    """
    line = list(ancestors(metadata, branch))
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    if branch != "main":  # main's ancestors are left to those who publish to main
        named |= {s.snapshot_id for s in ancestors(metadata, "main")}
    ids = [s.snapshot_id for s in line]
    batches = [n for n, s in enumerate(line) if s.summary and PREFIX + "pipeline" in s.summary.additional_properties]
    if oldest_kept is not None and oldest_kept not in ids:
        return []
    newest = min(batches, default=len(line) - 1 if has_states else 0)
    needed = newest if oldest_kept is None else ids.index(oldest_kept)
    kept = max(keep_last, needed + 1)
    # Without holes: a snapshot is kept if an older one is.
    while kept < len(line) and line[kept].timestamp_ms >= before:
        kept += 1
    return [i for i in reversed(ids[kept:]) if i not in named]


def unreferenced(metadata: TableMetadata, before: int) -> list[int]:
    """Snapshots, older than this, that are no ancestors of a branch or tag: written by abandoned attempts."""
    led_to = {s.snapshot_id for name in metadata.refs for s in ancestors(metadata, name)}
    return [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in led_to and s.timestamp_ms < before]


def expire(
    spark: SparkSession,
    maintained: MaintainedTable,
    options: Snapshots,
    orphans: Orphans,
    oldest_kept: int | None,
) -> Mapping[str, int]:
    """Expires a branch's old snapshots and those of dead runs, and deletes the files that only they have.

    Raises:
        GaveWay: no file of the table may be deleted.
    """
    maintained.require_deletable()
    metadata = maintained.load().metadata
    old = milliseconds_ago(timedelta(days=options.keep_days))
    dead = milliseconds_ago(timedelta(hours=orphans.older_than_hours))
    ids = expirable(metadata, maintained.branch, old, options.keep_last, oldest_kept, maintained.has_states)
    return expire_these(spark, maintained, [*ids, *unreferenced(metadata, min(old, dead))])


def expire_these(spark: SparkSession, maintained: MaintainedTable, ids: list[int]) -> Mapping[str, int]:
    """Expires these snapshots. Branches do not move, so running attempts remain valid."""
    before = {s.snapshot_id for s in maintained.load().metadata.snapshots}
    files = 0
    for first in range(0, len(ids), _AT_ONCE):
        (counts,) = maintained.procedure(spark, "expire_snapshots", snapshots=ids[first : first + _AT_ONCE])
        files += sum(count or 0 for name, count in counts.asDict().items() if name.endswith("_files_count"))
    after = {s.snapshot_id for s in maintained.load().metadata.snapshots}
    return {"snapshots before": len(before), "snapshots removed": len(before - after), "files deleted": files}

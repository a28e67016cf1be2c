"""Removes what dead runs left: branches of attempts, and files that no snapshot has. Those of live runs are younger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import urlparse

from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate
from pyspark.sql import SparkSession

from jobs.iceberg.branches import begun_before
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.spec.maintenance import Orphans

# File systems that Hadoop lists, in parallel; others are listed by the catalog's file IO, without Hadoop settings.
_FILE_SYSTEMS = ("", "file", "hdfs")


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
    """Removes the files below the table's location that no snapshot has."""
    removed = maintained.procedure(
        spark,
        "remove_orphan_files",
        older_than=f"{_nobodys_before(options):%Y-%m-%d %H:%M:%S}",
        by_prefix=urlparse(maintained.load().location()).scheme not in _FILE_SYSTEMS,
    )
    return {"orphan files removed": len(removed)}


def _nobodys_before(options: Orphans) -> datetime:
    return datetime.now(UTC) - timedelta(hours=options.older_than_hours)

"""An Iceberg table for maintenance: its catalog and branch, how it is changed, and its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate, SetSnapshotRefUpdate
from pyspark.sql import Row, SparkSession

from jobs.iceberg.branches import alive_for, attempts_since
from jobs.iceberg.staging import stage
from jobs.iceberg.table_commit import point
from jobs.maintenance.report import GaveWay
from resources.iceberg import IcebergCatalog
from resources.iceberg_errors import catalog_errors
from resources.spark_errors import spark_errors
from sql import render


@dataclass(frozen=True)
class MaintainedTable:
    """A table to maintain.

    Attributes:
        branch: the branch that the pipeline publishes to.
        merged: it is changed by MERGE, which another commit invalidates; else only by appends, which can be rebased.
        sort_by: columns by which compaction sorts files; none: files are only joined.
        attempt_seconds: no attempt to change it lives longer.
        has_states: its snapshots have committed states, of which the newest has to stay readable.
    """

    pipeline: str
    catalog: IcebergCatalog
    identifier: str
    branch: str
    merged: bool
    sort_by: tuple[str, ...]
    attempt_seconds: float
    has_states: bool = True

    def load(self) -> Table:
        return self.catalog.require(self.identifier)

    def exists(self) -> bool:
        """Whether the table exists; not before the first batch."""
        found = self.catalog.load(self.identifier)
        return found is not None and self.branch in found.metadata.refs

    def procedure(self, spark: SparkSession, template: str, **arguments: object) -> list[Row]:
        """Runs one of Iceberg's procedures and returns its result.

        Raises:
            CommitFailed: other writers were faster, also in Iceberg's own retries.
        """
        text = render(
            "spark", template, catalog=self.catalog.name, table=tuple(self.identifier.split(".")), **arguments
        )
        with spark_errors(self.identifier):
            return spark.sql(text).collect()

    def replace_head(
        self, table: Table, removed: Sequence[DataFile] = (), properties: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """One commit on the branch's head as it was read: removes files, and sets properties of the table.

        Raises:
            CommitFailed: the branch has moved; nothing was changed.
        """
        ref = table.metadata.refs[self.branch]
        with catalog_errors(self.identifier):
            updates, snapshot = stage(table, self.branch, [], [], removed, {})
        self.catalog.commit(
            table,
            [AssertRefSnapshotId(ref=self.branch, snapshot_id=ref.snapshot_id)],
            [
                *(u for u in updates if not isinstance(u, SetSnapshotRefUpdate)),
                point(self.branch, snapshot, like=ref),
                SetPropertiesUpdate(updates=dict(properties)),
            ],
        )

    def may_delete_files(self) -> bool:
        """Whether files may be deleted: not of a table that shares files with others, as it says itself."""
        return self.load().properties.get("gc.enabled", "true").lower() != "false"

    def require_deletable(self) -> None:
        """Called before files are deleted, which Iceberg would refuse.

        Raises:
            GaveWay: no file may be deleted.
        """
        if not self.may_delete_files():
            raise GaveWay("the table's property `gc.enabled` is false: no file is deleted", where=self.identifier)

    def give_way(self) -> None:
        """Called before a commit that would invalidate a running MERGE.

        Raises:
            GaveWay: an attempt to merge is running.
        """
        if not self.merged:
            return
        since = datetime.now(UTC) - alive_for(self.attempt_seconds)
        if attempts_since(self.load().metadata.refs, since):
            raise GaveWay("a merge is under way", where=self.identifier)


def sizes(table: Table, branch: str) -> dict[str, int]:
    """The numbers of files, bytes and delete files of the branch's head."""
    snapshot = table.snapshot_by_name(branch)
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    names = {"files": "total-data-files", "bytes": "total-files-size", "delete files": "total-delete-files"}
    return {name: int(summary.get(key) or 0) for name, key in names.items()}


def before_and_after(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {
        f"{name} {when}": values[name] for name in before for when, values in (("before", before), ("after", after))
    }


def milliseconds_ago(age: timedelta) -> int:
    """The instant before this time span, in milliseconds since the epoch, like snapshots' timestamps."""
    return int((datetime.now(UTC) - age).timestamp() * 1000)

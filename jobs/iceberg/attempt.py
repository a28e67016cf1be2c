"""One attempt at one commit that Spark writes: to a branch of its own, published in one step.

Nothing of an attempt is visible before `publish_*`, which is one conditional `catalog.commit_table`: the target
branch moves to our snapshot only if it is still where we started and our branch's head is ours (tried: 13 ms).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
)

from jobs.batch import PREFIX
from jobs.iceberg.branches import alive_for, attempt_branch, begun_before
from jobs.iceberg.history import summary_of
from jobs.iceberg.manifest_entries import live_entries
from jobs.iceberg.partitioning import uuid_partitions
from jobs.iceberg.table_commit import ATTEMPT, Contents, TableCommit, point
from jobs.spec.tables import LONGEST
from resources.errors import CommitFailed, InvariantBroken

# Older ones are taken for dead, so that runs which never publish leave few.
_ALIVE = alive_for(LONGEST)


class Attempt(TableCommit):
    """A branch of one attempt."""

    base: int

    @cached_property
    def _branch(self) -> str:
        return attempt_branch(self.pipeline, self.target, self.id, datetime.now(UTC))

    @property
    def path(self) -> tuple[str, ...]:
        """The branch as a table of Spark SQL."""
        return (*self.table_path, f"branch_{self._branch}")

    @property
    def has_uuid_partitions(self) -> bool:
        """Whether Spark cannot group rows by partition (`uuid_partitions`)."""
        return bool(uuid_partitions(self._table))

    def _begin(self) -> int:
        """Creates the branch at the target's head.

        Branches of other attempts stay: two runs that each removed the other's would both begin again for ever. So the
        first one publishes, and removes them then.
        """
        metadata = self._table.metadata
        if self.target not in metadata.refs:
            self._make_target()
            metadata = self._table.metadata
        self._check_lineage()
        base = metadata.refs[self.target].snapshot_id
        dead = begun_before(self._attempts(), datetime.now(UTC) - _ALIVE)
        removed = [RemoveSnapshotRefUpdate(ref_name=name) for name in dead]
        self._catalog.commit(self._table, [], [*removed, point(self._branch, base)])
        return base

    def head(self, properties: Mapping[str, str] = MappingProxyType({})) -> int:
        """The branch's newest snapshot, after a write.

        It must be one snapshot on the base. When a write commits, Iceberg creates a missing branch from main's current
        head: so a write may create a branch again that was removed, on a base that it was not computed from.

        Its summary must have exactly these properties and the attempt's: a MERGE takes them from the Spark session, in
        which a merge that was given up (a time limit) may set and remove others.

        Raises:
            CommitFailed: another run has removed the branch, or the summary is not that of the write.
            InvariantBroken: the snapshot is not the only one.
        """
        self._reload()
        metadata = self._table.metadata
        ref = metadata.refs.get(self._branch)
        if ref is None:
            raise CommitFailed("another run has removed this attempt's branch", where=self.identifier)
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        summary = summary_of(snapshot)
        if ref.snapshot_id == self.base:
            return self.base
        if {k: v for k, v in summary.items() if k.startswith(PREFIX)} != {**properties, **self.summary}:
            raise CommitFailed("the attempt's branch holds a snapshot with another summary", where=self.identifier)
        parent = snapshot.parent_snapshot_id if snapshot else None
        if parent != self.base:
            before = metadata.snapshot_by_id(parent) if parent is not None else None
            if summary_of(before).get(ATTEMPT) == self.id:
                raise InvariantBroken("the attempt's branch holds more than one snapshot", where=self.identifier)
            raise CommitFailed("another run has removed this attempt's branch while it wrote", where=self.identifier)
        return ref.snapshot_id

    def added_rows(self) -> int:
        """Rows that the branch adds to its base."""
        return sum(file.record_count for file in self._contents().files)

    def _contents(self) -> Contents:
        head = self.head()
        return self._of_branch(head, [] if head == self.base else list(added_files(self._table, head)))

    def _of_branch(self, head: int, files: list[DataFile]) -> Contents:
        """The commit requires that the branch is still ours."""
        return Contents(files, [AssertRefSnapshotId(ref=self._branch, snapshot_id=head)])

    def publish_head(self, properties: dict[str, str], mirrored: dict[str, str]) -> int:
        """Moves the target to the branch's head: for a MERGE, which is valid only on its base.

        A MERGE that changes nothing makes no snapshot; then an empty one carries the new state, if there is any.

        Returns:
            The published snapshot's id.
        """
        head = self.head(properties)
        if head == self.base and properties:
            return self.publish_append(properties, mirrored)
        self._check_base(self._table.metadata)
        self._publish(head, [], mirrored, self._of_branch(head, []))
        return head


def added_files(table: Table, snapshot_id: int) -> Iterable[DataFile]:
    """The data files that this snapshot added."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot_id or manifest.content != ManifestContent.DATA:
            continue
        for entry in live_entries(manifest, table.io):
            if entry.status == ManifestEntryStatus.ADDED:
                yield entry.data_file

"""One try at one commit to an Iceberg table: written to a branch that nobody else knows, published in one step.

Nothing of an attempt is visible before `publish_*`, which is one conditional `catalog.commit_table`: the target
branch moves to our snapshot only if it is still where we started and our branch's head is ours. Whoever comes
second is refused, be it another run or one that slept (DESIGN section 4, tried there: 13 ms).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles

from jobs.batch import PREFIX, CommittedState
from jobs.iceberg.branches import attempt_branch, attempt_prefix
from jobs.iceberg.history import ancestors, read_history, tag_name
from jobs.iceberg.schema import arrow_schema
from resources.errors import CommitFailed, CommitStateUnknown, InvariantBroken, TableReplaced
from resources.iceberg import IcebergCatalog, catalog_errors

ATTEMPT = PREFIX + "attempt"
_REBASES = 20


# How an attempt's one commit is made: at once by its catalog, or later together with those of other tables.
Publish = Callable[[Table, list[TableRequirement], list[TableUpdate]], None]


class Attempt:
    """A branch of one attempt; `expected` is the committed state that it continues.

    With `skip_undone` (`on_rollback: skip`) that may be a state that a rollback has undone. Without it a rollback
    between plan and commit is noticed like any other commit.

    Attributes:
        identifier: the table.
        id: UUID of the attempt; its snapshots carry it.
        base: the target branch's snapshot that the attempt starts from.
        target: the branch to publish to.
    """

    def __init__(
        self,
        catalog: IcebergCatalog,
        identifier: str,
        pipeline: str,
        expected: CommittedState | None,
        target: str = "main",
        skip_undone: bool = False,
        publish: Publish | None = None,
    ) -> None:
        self._catalog = catalog
        self.identifier = identifier
        self._pipeline = pipeline
        self._expected = expected.commit_id if expected else None
        self.target = target
        self._skip_undone = skip_undone
        self._commit = publish or catalog.commit
        self.id = uuid.uuid4().hex
        self._branch = attempt_branch(pipeline, target, self.id, datetime.now(UTC))
        self._table = catalog.require(identifier)
        self.base = self._begin()

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, those included that the pipeline file does not declare any more."""
        return arrow_schema(self._table)

    @property
    def path(self) -> tuple[str, ...]:
        """The branch as a table of Spark SQL."""
        return (self._catalog.name, *self.identifier.split("."), f"branch_{self._branch}")

    @property
    def summary(self) -> dict[str, str]:
        """What every snapshot of this attempt must carry, so that it is known as ours."""
        return {ATTEMPT: self.id}

    def _begin(self) -> int:
        """Makes the branch at the target's head and sweeps away those that dead runs left."""
        metadata = self._table.metadata
        if self.target not in metadata.refs:
            self._make_root(metadata)
            metadata = self._table.metadata
        self._check_lineage(metadata)
        base = metadata.refs[self.target].snapshot_id
        prefix = attempt_prefix(self._pipeline, self.target)
        left = [name for name in metadata.refs if name.startswith(prefix)]
        self._catalog.commit(
            self._table,
            [AssertTableUUID(uuid=metadata.table_uuid)],
            [
                *(RemoveSnapshotRefUpdate(ref_name=name) for name in left),
                point(self._branch, base),
            ],
        )
        return base

    def _check_lineage(self, metadata: TableMetadata) -> None:
        """The committed state must still be the one that the caller planned from."""
        history = read_history(metadata, self._pipeline, self.target)
        found = history.committed.commit_id if history.committed else None
        if history.undone and self._skip_undone:
            found = history.undone.commit_id
        if self._expected != found:
            raise CommitFailed(f"another run has committed {found or 'a rollback'} meanwhile", where=self.identifier)

    def _check_base(self, metadata: TableMetadata) -> None:
        if self._current(metadata) != self.base:
            raise CommitFailed("another writer has changed the table since this attempt began", where=self.identifier)

    def _make_root(self, metadata: TableMetadata) -> None:
        """The target's first snapshot: empty, or for a named branch, where main is."""
        main = metadata.refs.get("main")
        missing = AssertRefSnapshotId(ref=self.target, snapshot_id=None)
        if main:
            branch = point(self.target, main.snapshot_id)
            self._catalog.commit(self._table, [missing], [branch])
        else:
            added, _ = self._stage_append(self._table, [], {})
            self._catalog.commit(self._table, [missing], added)
        self._table = self._catalog.require(self.identifier)

    def head(self) -> int:
        """The branch's newest snapshot, after a write.

        It must be one snapshot on the base. Iceberg creates a missing branch when a write commits, from main's head of
        that moment: so a write may land on a branch that was swept away, and on a base that it was not computed from.

        Raises:
            CommitFailed: a newer run swept the branch away.
            InvariantBroken: the snapshot is not this attempt's, or not the only one.
        """
        uuid_before = self._table.metadata.table_uuid
        self._table = self._catalog.require(self.identifier)
        metadata = self._table.metadata
        if metadata.table_uuid != uuid_before:
            raise TableReplaced("the table was dropped and recreated while a batch was written", where=self.identifier)
        ref = metadata.refs.get(self._branch)
        if ref is None:
            raise CommitFailed("a newer run has swept this attempt away", where=self.identifier)
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
        if ref.snapshot_id == self.base:
            return self.base
        if summary.get(ATTEMPT) != self.id:
            raise InvariantBroken("the attempt's branch holds a snapshot of somebody else", where=self.identifier)
        parent = snapshot.parent_snapshot_id if snapshot else None
        if parent != self.base:
            before = metadata.snapshot_by_id(parent) if parent is not None else None
            if before and before.summary and before.summary.additional_properties.get(ATTEMPT) == self.id:
                raise InvariantBroken("the attempt's branch holds more than one snapshot", where=self.identifier)
            raise CommitFailed("a newer run has swept this attempt away while it wrote", where=self.identifier)
        return ref.snapshot_id

    def added_rows(self) -> int:
        """Rows that the branch adds to its base."""
        head = self.head()
        return 0 if head == self.base else sum(f.record_count for f in added_files(self._table, head))

    def publish_append(self, properties: dict[str, str], mirrored: dict[str, str], rebase: bool = True) -> int:
        """Appends the branch's data files to the target's head as one snapshot with these summary properties.

        The files are taken over as they are (metadata only), so a target that has moved meanwhile is no reason to
        write them again, as long as the committed state is still the expected one.

        Args:
            rebase: publish on the target's head, wherever it is. False where the rows were computed from the base, as
                in a replay: then only on the base.

        Returns:
            The published snapshot's id.

        Raises:
            CommitFailed: another run has committed meanwhile; without `rebase` also any other writer.
        """
        for turn in range(1, _REBASES + 1):
            head = self.head()
            metadata = self._table.metadata
            self._check_lineage(metadata)
            if not rebase:
                self._check_base(metadata)
            files = [] if head == self.base else list(added_files(self._table, head))
            if any(f.spec_id != metadata.default_spec_id for f in files):
                raise CommitFailed("the partition spec changed while the batch was written", where=self.identifier)
            added, snapshot_id = self._stage_append(self._table, files, {**properties, **self.summary})
            try:
                self._publish(self._current(metadata), head, snapshot_id, added, mirrored)
            except CommitFailed:
                # Somebody was faster in these milliseconds: on top of that one then, if the lineage allows it.
                if turn == _REBASES or not rebase:
                    raise
            else:
                return snapshot_id
        raise AssertionError("the last turn returns or raises")

    def publish_head(self, properties: dict[str, str], mirrored: dict[str, str]) -> int:
        """Moves the target to the branch's head: for a MERGE, which is valid only on its base.

        A MERGE that changes nothing leaves no snapshot; the state then moves with an empty one.

        Returns:
            The published snapshot's id.
        """
        head = self.head()
        if head == self.base:
            return self.publish_append(properties, mirrored)
        self._check_base(self._table.metadata)
        self._publish(self.base, head, head, [], mirrored)
        return head

    def discard(self) -> None:
        """Gives the attempt up; its files are left to orphan removal."""
        table = self._catalog.load(self.identifier)
        if table and self._branch in table.metadata.refs:
            self._catalog.commit(
                table,
                [AssertTableUUID(uuid=table.metadata.table_uuid)],
                [RemoveSnapshotRefUpdate(ref_name=self._branch)],
            )

    def _current(self, metadata: TableMetadata) -> int:
        return metadata.refs[self.target].snapshot_id

    def _stage_append(
        self, table: Table, files: Iterable[DataFile], summary: dict[str, str]
    ) -> tuple[list[TableUpdate], int]:
        """Writes manifest and manifest list of an append, without committing.

        pyiceberg's own commit of a producer retries on a moved head and so drops the requirement that makes it a
        compare-and-set; so only the staging half of it is used.
        """
        with catalog_errors(self.identifier):
            producer = _FastAppendFiles(
                operation=Operation.APPEND,
                transaction=table.transaction(),
                io=table.io,
                snapshot_properties=summary,
                branch=self.target,
            )
            for file in files:
                producer.append_data_file(file)
            updates, _ = producer._commit()
        return list(updates), producer.snapshot_id

    def _publish(
        self, base: int, head: int, published: int, added: list[TableUpdate], mirrored: dict[str, str]
    ) -> None:
        metadata = self._table.metadata
        requirements: list[TableRequirement] = [
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=self.target, snapshot_id=base),
            AssertRefSnapshotId(ref=self._branch, snapshot_id=head),
        ]
        updates: list[TableUpdate] = [
            *(u for u in added if not isinstance(u, SetSnapshotRefUpdate)),
            point(self.target, published, like=metadata.refs[self.target]),
            point(tag_name(self._pipeline, self.target), published, SnapshotRefType.TAG),
            RemoveSnapshotRefUpdate(ref_name=self._branch),
            SetPropertiesUpdate(updates=mirrored),
        ]
        try:
            self._commit(self._table, requirements, updates)
        except CommitStateUnknown:
            if not self._is_published(published):
                raise

    def _is_published(self, snapshot_id: int) -> bool:
        """Looks whether a commit whose answer was lost has happened."""
        table = self._catalog.load(self.identifier)
        return table is not None and any(s.snapshot_id == snapshot_id for s in ancestors(table.metadata, self.target))


def point(
    name: str, snapshot_id: int, kind: SnapshotRefType = SnapshotRefType.BRANCH, like: SnapshotRef | None = None
) -> SetSnapshotRefUpdate:
    """Points a branch or tag to a snapshot; `like` is the branch as it is, whose retention settings stay."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=like.max_ref_age_ms if like else None,
        max_snapshot_age_ms=like.max_snapshot_age_ms if like else None,
        min_snapshots_to_keep=like.min_snapshots_to_keep if like else None,
    )


def added_files(table: Table, snapshot_id: int) -> Iterable[DataFile]:
    """The data files that this snapshot added."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot_id or manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            if entry.status == ManifestEntryStatus.ADDED:
                yield entry.data_file

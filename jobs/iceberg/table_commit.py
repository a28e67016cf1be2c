"""The base of every commit of ours to an Iceberg table: the state that it continues, and one conditional commit.

The target branch moves only if it is still at the snapshot that we read, and only if the committed state there is the
one that the caller planned from. Of two runs the second one is refused, also one that slept (`docs/internals.md`).
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from jobs.batch import PREFIX, CommittedState
from jobs.iceberg.branches import attempt_prefix
from jobs.iceberg.history import PipelineBranch, ancestors
from jobs.iceberg.landed_batches import landed_batches
from jobs.iceberg.schema import arrow_schema
from jobs.iceberg.staging import stage
from jobs.iceberg.state_file import StateFile, put_aside
from jobs.only_writer import require_only_writer
from resources.errors import CommitFailed, CommitStateUnknown, TableReplaced
from resources.iceberg import IcebergCatalog, require_version
from resources.iceberg_errors import catalog_errors

ATTEMPT = PREFIX + "attempt"
_REBASES = 20


# Makes a commit: at once by the table's catalog, or later together with those of other tables.
Publish = Callable[[Table, list[TableRequirement], list[TableUpdate]], None]


@dataclass(frozen=True)
class Contents:
    """The contents of a commit, determined before each try to publish it.

    Attributes:
        requirements, updates: of the same commit, beside those of the target.
        deletes: position delete files to add.
        removed: data and delete files to remove.
    """

    files: Sequence[DataFile]
    requirements: list[TableRequirement] = field(default_factory=list)
    updates: list[TableUpdate] = field(default_factory=list)
    deletes: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()


class TableCommit(ABC):
    """One attempt at one commit; `expected` is the commit id of the committed state that it continues.

    With `skip_undone` (`on_rollback: skip`) that may be a state that a rollback has undone. Without it a rollback
    between plan and commit is noticed like any other commit.

    With `pending` that state is still being committed: it is looked for at publication only.

    `oldest` is the number of the oldest landed batch on which the rows count; None: they count on none.

    Attributes:
        identifier: the table.
        id: the attempt's UUID, which its snapshots carry.
        base: the target branch's snapshot that it starts from; None if there is none yet.
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
        table: Table | None = None,
        oldest: int | None = None,
        pending: bool = False,
    ) -> None:
        self._catalog = catalog
        self.identifier = identifier
        self.pipeline = pipeline
        self._expected = expected.commit_id if expected else None
        self.target = target
        self._pipeline_branch = PipelineBranch(pipeline, target)
        self._skip_undone = skip_undone
        self._oldest = oldest
        self._pending = pending
        self._commit = publish or catalog.commit
        self.id = uuid.uuid4().hex
        self._state_file: StateFile | None = None
        self._table = table or catalog.require(identifier)
        require_version(self._table.format_version, identifier)
        self.base = self._begin()

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, including those that the pipeline file no longer declares."""
        return arrow_schema(self._table)

    @property
    def table_path(self) -> tuple[str, ...]:
        """The table in Spark SQL."""
        return self._catalog.spark_path(self.identifier)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties, as last loaded."""
        return self._table.metadata.properties

    @property
    def summary(self) -> dict[str, str]:
        """Summary properties that mark the snapshots of this attempt."""
        return {ATTEMPT: self.id}

    def carried(self, properties: Mapping[str, str]) -> dict[str, str]:
        """These properties in the form for the snapshot's summary (`jobs.iceberg.state_file`)."""
        summary, file = put_aside(self._table, properties)
        self._state_file = file or self._state_file
        return summary

    @abstractmethod
    def _begin(self) -> int | None:
        """Checks that the attempt may begin, and prepares it; returns the base."""

    @abstractmethod
    def _contents(self) -> Contents:
        """Loads the table again, and determines the contents of the commit."""

    def publish_append(self, properties: Mapping[str, str], mirrored: dict[str, str], rebase: bool = True) -> int:
        """Adds the written files to the target's head as one snapshot with these summary properties.

        Only metadata is written, so if the target has moved meanwhile the same files are published on its new head, as
        long as the committed state is still the expected one.

        Args:
            mirrored: table properties of the same commit; none for a snapshot that is no batch.
            rebase: publish on the target's current head. False: only on the base, because the rows were computed from
                it, as in a replay.

        Returns:
            The published snapshot's id.

        Raises:
            CommitFailed: another run has committed meanwhile; without `rebase` also any other writer.
            ConfigurationError: another pipeline writes the table.
        """
        summary = {**self.carried(properties), **self.summary}
        for turn in range(1, _REBASES + 1):
            contents = self._contents()
            metadata = self._table.metadata
            self._check_lineage()
            if not rebase:
                self._check_base(metadata)
            if any(f.spec_id != metadata.default_spec_id for f in contents.files):
                raise CommitFailed("the partition spec changed while the batch was written", where=self.identifier)
            added, snapshot_id = self._stage(contents, summary)
            try:
                self._publish(snapshot_id, added, mirrored, contents)
            except CommitFailed:
                # Another commit was faster: try again on top of it, if the lineage allows.
                if turn == _REBASES or not rebase:
                    raise
            else:
                return snapshot_id
        raise AssertionError("the last turn returns or raises")

    def _check_lineage(self) -> None:
        """Requires that the committed state is still the one that the caller planned from, and that no other pipeline
        writes the table."""
        others = self._pipeline_branch.other_writers(self.properties)
        require_only_writer(self.pipeline, others, self.identifier)
        history = self._pipeline_branch.history(self._table)
        found = history.committed.commit_id if history.committed else None
        if history.undone and self._skip_undone:
            found = history.undone.commit_id
        if self._expected != found:
            commits = f"{found or 'none'} instead of {self._expected or 'none'}"
            what = f"the table's committed state has changed: commit {commits}"
            raise CommitFailed(what, where=self.identifier)
        known = landed_batches(self._table, self.pipeline).batches if self._oldest is not None else []
        if known and known[0].number != self._oldest:
            raise CommitFailed("retention has removed landed batches meanwhile", where=self.identifier)

    def _check_base(self, metadata: TableMetadata) -> None:
        if _head(metadata, self.target) != self.base:
            raise CommitFailed("another writer has changed the table since this attempt began", where=self.identifier)

    def _reload(self) -> None:
        uuid_before = self._table.metadata.table_uuid
        self._table = self._catalog.require(self.identifier)
        if self._table.metadata.table_uuid != uuid_before:
            raise TableReplaced("the table was dropped and recreated while a batch was written", where=self.identifier)

    def _make_target(self) -> None:
        """Creates the target branch: an empty snapshot on main, if main has none; any other branch at main's snapshot.

        Iceberg takes a table's first snapshot on main only.
        """
        if "main" not in self._table.metadata.refs:
            with catalog_errors(self.identifier):
                added, _ = stage(self._table, "main", [], [], [], {})
            self._create("main", added)
        if self.target != "main":
            self._create(self.target, [point(self.target, self._table.metadata.refs["main"].snapshot_id)])

    def _create(self, branch: str, updates: list[TableUpdate]) -> None:
        self._catalog.commit(self._table, [AssertRefSnapshotId(ref=branch, snapshot_id=None)], updates)
        self._table = self._catalog.require(self.identifier)

    def _stage(self, contents: Contents, summary: dict[str, str]) -> tuple[list[TableUpdate], int]:
        """Writes the manifests and the manifest list of a snapshot, without committing it."""
        with catalog_errors(self.identifier):
            return stage(self._table, self.target, contents.files, contents.deletes, contents.removed, summary)

    def _publish(self, published: int, added: list[TableUpdate], mirrored: dict[str, str], contents: Contents) -> None:
        metadata = self._table.metadata
        requirements: list[TableRequirement] = [
            AssertRefSnapshotId(ref=self.target, snapshot_id=_head(metadata, self.target)),
            *contents.requirements,
        ]
        updates: list[TableUpdate] = [
            *(u for u in added if not isinstance(u, SetSnapshotRefUpdate)),
            point(self.target, published, like=metadata.refs.get(self.target)),
            *([point(self._pipeline_branch.tag, published, SnapshotRefType.TAG)] if mirrored else []),
            *contents.updates,
            # They begin again: the target has moved. (Some appends could be rebased, where the state has not.)
            *(RemoveSnapshotRefUpdate(ref_name=name) for name in self._attempts()),
            *([self._state_file.registered(published)] if self._state_file else []),
            SetPropertiesUpdate(updates=mirrored),
        ]
        try:
            self._commit(self._table, requirements, updates)
        except CommitStateUnknown:
            if not self._is_published(published):
                raise

    def _attempts(self) -> list[str]:
        """The branches of attempts on the target, this one's too."""
        prefix = attempt_prefix(self.pipeline, self.target)
        return [name for name in self._table.metadata.refs if name.startswith(prefix)]

    def _is_published(self, snapshot_id: int) -> bool:
        """Whether a commit whose response was lost has happened."""
        table = self._catalog.load(self.identifier)
        return table is not None and any(s.snapshot_id == snapshot_id for s in ancestors(table.metadata, self.target))


def _head(metadata: TableMetadata, branch: str) -> int | None:
    ref = metadata.refs.get(branch)
    return ref.snapshot_id if ref else None


def point(
    name: str, snapshot_id: int, kind: SnapshotRefType = SnapshotRefType.BRANCH, like: SnapshotRef | None = None
) -> SetSnapshotRefUpdate:
    """Points a branch or tag to a snapshot; `like` is the existing branch, whose retention settings are kept."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=like.max_ref_age_ms if like else None,
        max_snapshot_age_ms=like.max_snapshot_age_ms if like else None,
        min_snapshots_to_keep=like.min_snapshots_to_keep if like else None,
    )

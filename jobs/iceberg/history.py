"""The committed state of an Iceberg table, read from its snapshots.

The state that counts is that of the nearest ancestor of the branch's head that has one of this pipeline: so a rollback
is noticed. The tag on the newest published batch, or the table properties, are used only if expired snapshots cut the
ancestry: not beyond the table's root, and not for a snapshot that is older than that batch (`docs/internals.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.batch import PREFIX, CommittedState
from jobs.iceberg.state_file import Carried
from jobs.iceberg.table_property import RECREATED_TOPICS, SKIPPED_BATCHES, property_prefix

_COMMIT_ID = PREFIX + "commit-id"
# In the summary of a snapshot that handed the table over: the previous pipeline, whose older states do not count.
_GIVEN_BY = PREFIX + "given-by"
# Table property: the pipeline that the table was handed over to. (No pipeline's name has a hyphen.)
_GIVEN_TO = PREFIX + "given-to"


@dataclass(frozen=True)
class History:
    """The committed states that the snapshots have.

    Attributes:
        committed: the state that counts: of the nearest ancestor that has one. None: no batch of this pipeline.
        undone: a newer state that was published and is no ancestor any more: the table was rolled back.
        is_known: False: it may have any batch before `undone`, as it was rolled back to a snapshot whose state has
            expired; without `undone` any batch of main, of which the branch was made.
    """

    committed: CommittedState | None
    undone: CommittedState | None
    is_known: bool = True


def ancestors(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    """Snapshots from the branch's head back to the oldest that is still known."""
    by_id = {s.snapshot_id: s for s in metadata.snapshots}
    head = metadata.refs.get(branch)
    current = by_id.get(head.snapshot_id) if head else None
    while current is not None:
        yield current
        parent = current.parent_snapshot_id
        current = by_id.get(parent) if parent is not None else None


def _is_cut(last: Snapshot | None, tagged: Snapshot | None) -> bool:
    """Whether older ancestors have expired, with the newest batch among them or before them.

    Args:
        last: the oldest ancestor that is known. It has an expired parent, or none: pyiceberg's expiry removes the
            parent's id, so that it looks like the table's first snapshot.
        tagged: the snapshot of the newest batch, if it is known.
    """
    if last is None or tagged is None:
        return last is not None and last.parent_snapshot_id is not None
    # If the oldest known ancestor is older than the tagged snapshot, the walk would have met that one, were it an
    # ancestor too. A replaced table begins again.
    return _place(last) > _place(tagged) and not _begins_from_nothing(last)


def _begins_from_nothing(snapshot: Snapshot) -> bool:
    """Whether this snapshot added all of the table's files without removing others (as a compaction would)."""
    summary = summary_of(snapshot)
    added, deleted = (summary.get(f"{part}-data-files", "0") for part in ("added", "deleted"))
    return snapshot.parent_snapshot_id is None and added == summary.get("total-data-files") and deleted == "0"


def _place(snapshot: Snapshot) -> tuple[int, int]:
    """Orders snapshots: by sequence number, then time (format version 1 has only time)."""
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


@dataclass(frozen=True)
class PipelineBranch:
    """The branch of a table that a pipeline publishes to."""

    pipeline: str
    branch: str = "main"

    @property
    def tag(self) -> str:
        """The tag that marks the newest published batch."""
        # No pipeline's name has a hyphen, so no two pairs share a tag.
        return f"batchmerge_{self.pipeline}" + ("" if self.branch == "main" else f"--{self.branch}")

    def history(self, table: Table) -> History:
        """The committed state."""
        tagged = self._tagged(table)
        published = self._state(table, tagged) if tagged else self._last_mirrored(table)
        if self.branch != "main" and self.branch not in table.metadata.refs:
            return self._before_branching(table, published)
        last: Snapshot | None = None
        for snapshot in ancestors(table.metadata, self.branch):
            last = snapshot
            if summary_of(snapshot).get(_GIVEN_BY) == self.pipeline:
                return History(None, None)
            if summary_of(snapshot).get(PREFIX + "pipeline") == self.pipeline:
                found = self._state(table, snapshot)
                undone = published if published and published.batch_number > found.batch_number else None
                return History(found, undone)
        if _is_cut(last, tagged):
            newest = published or self._branched_off(table)
            return History(newest, None, is_known=newest is not None or not self._may_have_mains(table))
        return History(None, published, is_known=last is None or last.parent_snapshot_id is None)

    def _before_branching(self, table: Table, published: CommittedState | None) -> History:
        """That of a branch that does not exist: it begins with main's rows, so it has main's state.

        Args:
            published: the newest state that the branch had, if it existed before.
        """
        main = PipelineBranch(self.pipeline).history(table)
        has_it = main.committed and published and published.batch_number <= main.committed.batch_number
        return History(main.committed, None if has_it else published) if main.is_known else main

    def _branched_off(self, table: Table) -> CommittedState | None:
        """The state that main had where this branch was made from it; None if anything was written to it since."""
        main, head = PipelineBranch(self.pipeline), table.snapshot_by_name(self.branch)
        tagged = main._tagged(table)
        if self.branch == "main" or head is None or head not in ancestors(table.metadata, "main"):
            return None
        # A batch that main has got since is not in the branch.
        return main.history(table).committed if tagged and _place(tagged) <= _place(head) else None

    def _may_have_mains(self, table: Table) -> bool:
        """Whether the branch may have been made from main when that had batches."""
        return self.branch != "main" and bool(PipelineBranch(self.pipeline).own_properties(table))

    def snapshot_before(self, table: Table, batch: int) -> tuple[Snapshot, int] | None:
        """The newest snapshot of the branch that lacks this batch, and the newest batch that it has; None if there is
        no such snapshot, or if it has expired."""
        history, newest = self.history(table), table.snapshot_by_name(self.branch)
        if newest and history.committed and not history.undone and history.committed.batch_number < batch:
            return newest, history.committed.batch_number
        for snapshot in ancestors(table.metadata, self.branch):
            newest, summary = newest or snapshot, summary_of(snapshot)
            if summary.get(_GIVEN_BY) == self.pipeline:
                return None
            if summary.get(PREFIX + "pipeline") == self.pipeline:
                number = int(summary[PREFIX + "batch"])
                if number < batch:
                    return newest, number
                newest = None
        return None

    def other_writers(self, properties: Mapping[str, str]) -> set[str]:
        """Other pipelines that own the branch, so that this one cannot write it: the one that it was handed over to;
        else, if this one has no state, those that have one."""
        if given := properties.get(self._given_to):
            return {given} - {self.pipeline}
        end = _COMMIT_ID.removeprefix(PREFIX)
        names = [key.removeprefix(PREFIX).removesuffix("." + end) for key in properties if key.endswith("." + end)]
        # `pipeline`, or `pipeline.branch`
        parts = [name.split(".", 1) for name in names]
        known = {part[0] for part in parts if (part[1] if len(part) > 1 else "main") == self.branch}
        return set() if self.pipeline in known else known

    @property
    def given_by(self) -> dict[str, str]:
        """The summary of the snapshot that hands the branch over to another pipeline."""
        return {_GIVEN_BY: self.pipeline}

    def given_away(self, table: Table, to: str) -> dict[str, str]:
        """The table properties with which the branch is handed over to another pipeline."""
        recreated = self.recreated(table)
        skipped = SKIPPED_BATCHES.read(table.metadata.properties, self.pipeline, self.branch)
        kept = RECREATED_TOPICS.written(recreated, to, self.branch) if recreated else {}
        kept |= SKIPPED_BATCHES.written(True, to, self.branch) if skipped else {}
        return {self._given_to: to, **kept}

    def own_properties(self, table: Table) -> list[str]:
        """The names of the pipeline's table properties of this branch."""
        prefix = property_prefix(self.pipeline, self.branch)
        own = [key for key in table.metadata.properties if key.startswith(prefix)]
        return [key for key in own if "." not in key.removeprefix(prefix)]  # with a dot: of another branch

    def recreated(self, table: Table | None) -> dict[str, list[int]]:
        """Topics that were recreated since the table's first rows, each with the first batches of its later topics."""
        return RECREATED_TOPICS.read(table.metadata.properties if table else {}, self.pipeline, self.branch)

    def was_given(self, table: Table) -> bool:
        """Whether this pipeline took the table over, with all rows of the one before."""
        return table.metadata.properties.get(self._given_to) == self.pipeline

    @property
    def _given_to(self) -> str:
        return _GIVEN_TO if self.branch == "main" else f"{_GIVEN_TO}.{self.branch}"

    def _tagged(self, table: Table) -> Snapshot | None:
        """The snapshot of the newest batch that was ever published."""
        tag = table.metadata.refs.get(self.tag)
        found = table.metadata.snapshot_by_id(tag.snapshot_id) if tag else None
        return found if found and summary_of(found).get(PREFIX + "pipeline") == self.pipeline else None

    def _last_mirrored(self, table: Table) -> CommittedState | None:
        """The newest state that was ever published."""
        mirrored = self._mirrored(table)
        return CommittedState.from_properties(mirrored) if _COMMIT_ID in mirrored else None

    def _state(self, table: Table, snapshot: Snapshot) -> CommittedState:
        """The state of a snapshot. If it is the newest one, its long parts come from the table properties, not the
        file."""
        summary, mirrored = summary_of(snapshot), self._mirrored(table)
        if mirrored.get(_COMMIT_ID) == summary[_COMMIT_ID]:
            summary = {name: mirrored.get(name, value) for name, value in summary.items()}
        return CommittedState.from_properties(Carried(summary, table.io))

    def _mirrored(self, table: Table) -> dict[str, str]:
        prefix, properties = property_prefix(self.pipeline, self.branch), table.metadata.properties
        return {PREFIX + key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}


def state_properties(state: CommittedState, branch: str) -> dict[str, str]:
    """The committed state as table properties, whose names contain the pipeline and the branch."""
    prefix = property_prefix(state.pipeline, branch)
    return {prefix + key.removeprefix(PREFIX): value for key, value in state.to_properties().items()}


def summary_of(snapshot: Snapshot | None) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}

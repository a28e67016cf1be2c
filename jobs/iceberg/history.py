"""The committed state of an Iceberg table, read from its snapshots.

The state that counts is that of the nearest ancestor of the branch's head that has one of this pipeline: so a rollback
is noticed. The tag on the newest published batch, or the table properties, are used only if expired snapshots cut the
ancestry: not beyond the table's root, and not for a snapshot that is older than that batch (`docs/internals.md`).
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.batch import LENGTHS, PREFIX, CommittedState, LandedBatch, LandedBatches, landed_from_properties
from jobs.iceberg.state_file import Carried
from jobs.iceberg.table_property import KEPT_FROM, RECREATED_TOPICS, SKIPPED_BATCHES, property_prefix

_COMMIT_ID = PREFIX + "commit-id"
# In the summary of a snapshot that handed the table over: the previous pipeline, whose older states do not count.
_GIVEN_BY = PREFIX + "given-by"
# Table property: the pipeline that the table was handed over to. (No pipeline's name has a hyphen.)
_GIVEN_TO = PREFIX + "given-to"

# Parsed summaries by table and snapshot. Beyond `_MOST_KNOWN` those of tables go that were not looked at for longest:
# then tables that are looked at in turn are parsed each time. So it is more than pipelines have: 500 tables with 200
# batches each, of which one takes up to 5 KB.
_KNOWN: OrderedDict[UUID, dict[int, _SnapshotReport]] = OrderedDict()
_MOST_KNOWN = 100_000
_LOCK = Lock()


def tag_name(pipeline: str, branch: str) -> str:
    """The tag that marks the newest published batch."""
    # No pipeline's name has a hyphen, so no two pairs share a tag.
    return f"batchmerge_{pipeline}" if branch == "main" else f"batchmerge_{pipeline}--{branch}"


@dataclass(frozen=True)
class History:
    """The committed states that the snapshots have.

    Attributes:
        committed: the state that counts: of the nearest ancestor that has one. None: no batch of this pipeline.
        undone: a newer state that was published and is no ancestor any more: the table was rolled back.
        is_known: False: rolled back to a snapshot whose state has expired; it may have any batch before `undone`.
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


def read_history(table: Table, pipeline: str, branch: str) -> History:
    """The committed state of one pipeline on one branch."""
    tagged = _tagged(table, pipeline, branch)
    published = _state(table, tagged, branch) if tagged else _last_mirrored(table, pipeline, branch)
    last: Snapshot | None = None
    for snapshot in ancestors(table.metadata, branch):
        last = snapshot
        if _summary(snapshot).get(_GIVEN_BY) == pipeline:
            return History(None, None)
        if _summary(snapshot).get(PREFIX + "pipeline") == pipeline:
            found = _state(table, snapshot, branch)
            undone = published if published and published.batch_number > found.batch_number else None
            return History(found, undone)
    if _is_cut(last, tagged):
        return History(published, None)
    return History(None, published, is_known=last is None or last.parent_snapshot_id is None)


def snapshot_before(table: Table, pipeline: str, branch: str, batch: int) -> tuple[Snapshot, int] | None:
    """The newest snapshot of the branch that lacks this batch, and the newest batch that it has; None if there is no
    such snapshot, or if it has expired."""
    history, newest = read_history(table, pipeline, branch), table.snapshot_by_name(branch)
    if newest and history.committed and not history.undone and history.committed.batch_number < batch:
        return newest, history.committed.batch_number
    for snapshot in ancestors(table.metadata, branch):
        newest, summary = newest or snapshot, _summary(snapshot)
        if summary.get(_GIVEN_BY) == pipeline:
            return None
        if summary.get(PREFIX + "pipeline") == pipeline:
            number = int(summary[PREFIX + "batch"])
            if number < batch:
                return newest, number
            newest = None
    return None


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
    summary = _summary(snapshot)
    added, deleted = (summary.get(f"{part}-data-files", "0") for part in ("added", "deleted"))
    return snapshot.parent_snapshot_id is None and added == summary.get("total-data-files") and deleted == "0"


def _place(snapshot: Snapshot) -> tuple[int, int]:
    """Orders snapshots: by sequence number, then time (format version 1 has only time)."""
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def other_writers(properties: Mapping[str, str], pipeline: str, branch: str) -> set[str]:
    """Other pipelines that own the branch, so that this one cannot write it: the one that it was handed over to; else,
    if this one has no state, those that have one."""
    if given := properties.get(_given_to(branch)):
        return {given} - {pipeline}
    end = _COMMIT_ID.removeprefix(PREFIX)
    names = [key.removeprefix(PREFIX).removesuffix("." + end) for key in properties if key.endswith("." + end)]
    # `pipeline`, or `pipeline.branch`
    parts = [name.split(".", 1) for name in names]
    known = {part[0] for part in parts if (part[1] if len(part) > 1 else "main") == branch}
    return set() if pipeline in known else known


def given_away(table: Table, pipeline: str, to: str, branch: str) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The contents of a commit that hands the branch over to another pipeline: the snapshot's summary, properties to
    set, and properties to remove."""
    recreated = recreated_topics_of(table, pipeline, branch)
    skipped = SKIPPED_BATCHES.read(table.metadata.properties, pipeline, branch)
    kept = RECREATED_TOPICS.written(recreated, to, branch) if recreated else {}
    kept |= SKIPPED_BATCHES.written(True, to, branch) if skipped else {}
    prefix = property_prefix(pipeline, branch)
    own = [key for key in table.metadata.properties if key.startswith(prefix)]
    gone = [key for key in own if "." not in key.removeprefix(prefix)]  # with a dot: of another branch
    return {_GIVEN_BY: pipeline}, {_given_to(branch): to, **kept}, gone


def _given_to(branch: str) -> str:
    return _GIVEN_TO if branch == "main" else f"{_GIVEN_TO}.{branch}"


def landed_batches(table: Table, pipeline: str) -> LandedBatches:
    """The landed batches that the table's snapshots still have, from the first that retention keeps. Snapshots of
    maintenance have none."""
    first = KEPT_FROM.read(table.metadata.properties, pipeline)
    reports = reversed(_reports(table))
    known = [report.landed for report in reports if report.landed and report.pipeline == pipeline]
    found = [landed for landed in known if landed.number >= first]
    return LandedBatches(found, not found or found[0].batch.previous_commit_id is None)


@dataclass(frozen=True)
class _SnapshotReport:
    """A snapshot's summary, and its landed batch if it has one."""

    summary: Carried
    pipeline: str | None
    landed: LandedBatch | None


def _reports(table: Table) -> list[_SnapshotReport]:
    """The snapshots' parsed summaries, newest first. They are cached: snapshots never change, and each run reads all of
    them several times."""
    before, now = _KNOWN.get(table.metadata.table_uuid, {}), dict[int, _SnapshotReport]()
    for snapshot in ancestors(table.metadata, "main"):
        known = now[snapshot.snapshot_id] = before.get(snapshot.snapshot_id) or _report(snapshot, table.io)
        known.summary.io = table.io  # the previous one's credentials may have expired
    with _LOCK:
        _KNOWN[table.metadata.table_uuid] = now
        _KNOWN.move_to_end(table.metadata.table_uuid)
        # The table itself stays, whatever its size: the next look would parse all of it again.
        while len(_KNOWN) > 1 and sum(map(len, _KNOWN.values())) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return list(now.values())


def _report(snapshot: Snapshot, io: FileIO) -> _SnapshotReport:
    # Without Iceberg's own totals; the names are the same strings in all of them.
    own = {sys.intern(name): value for name, value in _summary(snapshot).items() if name.startswith(PREFIX)}
    summary = Carried(own, io)
    landed = landed_from_properties(summary, snapshot.snapshot_id) if LENGTHS in summary else None
    return _SnapshotReport(summary, summary.get(PREFIX + "pipeline"), landed)


def state_properties(state: CommittedState, branch: str) -> dict[str, str]:
    """The committed state as table properties, whose names contain the pipeline and the branch."""
    prefix = property_prefix(state.pipeline, branch)
    return {prefix + key.removeprefix(PREFIX): value for key, value in state.to_properties().items()}


def recreated_topics_of(table: Table | None, pipeline: str, branch: str) -> dict[str, list[int]]:
    """Topics that were recreated since the table's first rows, each with the first batches of its later topics."""
    return RECREATED_TOPICS.read(table.metadata.properties if table else {}, pipeline, branch)


def was_given_to(table: Table, pipeline: str, branch: str) -> bool:
    """Whether this pipeline took the table over, with all rows of the one before."""
    return table.metadata.properties.get(_given_to(branch)) == pipeline


def _tagged(table: Table, pipeline: str, branch: str) -> Snapshot | None:
    """The snapshot of the newest batch that was ever published."""
    tag = table.metadata.refs.get(tag_name(pipeline, branch))
    found = table.metadata.snapshot_by_id(tag.snapshot_id) if tag else None
    return found if found and _summary(found).get(PREFIX + "pipeline") == pipeline else None


def _last_mirrored(table: Table, pipeline: str, branch: str) -> CommittedState | None:
    """The newest state that was ever published."""
    mirrored = _mirrored(table, pipeline, branch)
    return CommittedState.from_properties(mirrored) if _COMMIT_ID in mirrored else None


def _state(table: Table, snapshot: Snapshot, branch: str) -> CommittedState:
    """The state of a snapshot. If it is the newest one, its long parts come from the table properties, not the file."""
    summary = _summary(snapshot)
    mirrored = _mirrored(table, summary[PREFIX + "pipeline"], branch)
    if mirrored.get(_COMMIT_ID) == summary[_COMMIT_ID]:
        summary = {name: mirrored.get(name, value) for name, value in summary.items()}
    return CommittedState.from_properties(Carried(summary, table.io))


def _mirrored(table: Table, pipeline: str, branch: str) -> dict[str, str]:
    prefix, properties = property_prefix(pipeline, branch), table.metadata.properties
    return {PREFIX + key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties

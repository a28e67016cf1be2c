"""The committed state of an Iceberg table, from its snapshots (`jobs.iceberg.history`)."""

from __future__ import annotations

from pyiceberg.table import Table

from jobs.batch import PREFIX, CommittedState
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.iceberg.history import PipelineBranch, ancestors, summary_of
from resources.errors import TableReplaced


def committed_state(found: Table | None, pipeline: str, table: IcebergTable) -> CommittedState | None:
    """The branch's committed state; after a rollback, as `on_rollback` says.

    Raises:
        TableReplaced: the table was rolled back, and `on_rollback` is `hold`; or it is not known which rows it has.
    """
    if found is None:
        return None
    history = PipelineBranch(pipeline, table.branch).history(found)
    if history.undone is None and not history.is_known and not table.has_unique_key:
        raise TableReplaced(
            "it is not known which batches the branch has: the snapshots that say it have expired",
            where=f"iceberg {table.table}, branch {table.branch}",
            remedy="drop the branch, and the next run makes it again from main; or name another one in `branch`",
        )
    if history.undone is None:
        return history.committed
    undone, where = history.undone.batch_number, f"iceberg {table.table}"
    skip = f"`skip` to go on after batch {undone} without them, or roll the table forward again"
    if table.on_rollback == "replay" and not history.is_known and not table.has_unique_key:
        raise TableReplaced(
            f"the table was rolled back: which batch it stands at is not known any more, batch {undone} was committed",
            where=where,
            remedy=f"`on_rollback: replay` could merge rows twice; set {skip}",
        )
    if table.on_rollback == "hold":
        first = "before its first batch" if history.is_known else "a batch that is not known any more"
        at = f"batch {history.committed.batch_number}" if history.committed else first
        raise TableReplaced(
            f"the table was rolled back: it stands at {at}, batch {undone} was committed",
            where=where,
            remedy=f"set `on_rollback: replay` to merge the batches after it again, {skip}",
        )
    return history.undone if table.on_rollback == "skip" else history.committed


def commit_reference(found: Table | None, pipeline: str, branch: str, batch_number: int) -> str | None:
    """The id of the snapshot that added a batch; None if it has expired."""
    if found is None:
        return None
    brought, oldest = None, None
    for snapshot in ancestors(found.metadata, branch):
        oldest = snapshot
        summary = summary_of(snapshot)
        if summary.get(PREFIX + "pipeline") != pipeline:
            continue
        if int(summary[PREFIX + "batch"]) < batch_number:
            return brought
        brought = str(snapshot.snapshot_id)
    # If the walk did not end at the table's first snapshot, an expired one may have added the batch.
    return brought if oldest and oldest.parent_snapshot_id is None else None

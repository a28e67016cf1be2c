"""The committed state of an Iceberg table, which its own snapshots carry (`jobs.iceberg.history`)."""

from __future__ import annotations

from pyiceberg.table import Table

from jobs.batch import PREFIX, CommittedState
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.iceberg.history import ancestors, read_history
from resources.errors import TableReplaced


def committed_state(found: Table | None, pipeline: str, table: IcebergTable) -> CommittedState | None:
    """What the branch carries; after a rollback, what `on_rollback` makes of it.

    Raises:
        TableReplaced: it was rolled back, under `on_rollback: hold`.
    """
    if found is None:
        return None
    history = read_history(found, pipeline, table.branch)
    if history.undone and table.on_rollback == "hold":
        at = f"batch {history.committed.batch_number}" if history.committed else "before its first batch"
        raise TableReplaced(
            f"the table was rolled back: it stands at {at}, batch {history.undone.batch_number} was committed",
            where=f"iceberg {table.table}",
            remedy="set `on_rollback: replay` to merge the batches after it again, `skip` to go on after "
            f"batch {history.undone.batch_number} without them, or roll the table forward again",
        )
    if history.undone and table.on_rollback == "skip":
        return history.undone
    return history.committed


def commit_reference(found: Table | None, pipeline: str, branch: str, batch_number: int) -> str | None:
    """The snapshot that brought a batch; None where it has expired."""
    if found is None:
        return None
    brought, oldest = None, None
    for snapshot in ancestors(found.metadata, branch):
        oldest = snapshot
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if summary.get(PREFIX + "pipeline") != pipeline:
            continue
        if int(summary[PREFIX + "batch"]) < batch_number:
            return brought
        brought = str(snapshot.snapshot_id)
    # The walk ended at the table's first snapshot, or where older ones have expired: then this may not be the one.
    return brought if oldest and oldest.parent_snapshot_id is None else None

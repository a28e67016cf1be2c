"""What the tables themselves still say about older commits: files of a landed batch, the commit that a batch is in."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.batch import PREFIX
from jobs.destinations.base import Destination
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.events.messages import DataFile
from jobs.iceberg.attempt import added_files
from jobs.iceberg.history import ancestors
from resources.iceberg import IcebergCatalog, catalog_errors

# More would make a message that Kafka refuses (1 MB by default).
_LISTED = 10_000


@dataclass(frozen=True)
class Files:
    """The first of a snapshot's files, and how many there are."""

    listed: tuple[DataFile, ...] = ()
    total: int = 0


def landed_files(catalog: IcebergCatalog, identifier: str, snapshot_id: int) -> Files:
    """The files that a snapshot added; none where the snapshot has expired."""
    table = catalog.load(identifier)
    if table is None:
        return Files()
    with catalog_errors(identifier):
        found = [
            DataFile(f.file_path, f.file_format.value, f.record_count, f.file_size_in_bytes)
            for f in added_files(table, snapshot_id)
        ]
    return Files(tuple(found[:_LISTED]), len(found))


def commit_reference(destination: Destination, batch_number: int) -> str | None:
    """The snapshot that brought a batch into an Iceberg table; None for other systems, or where it has expired."""
    if not isinstance(destination, IcebergDestination):
        return None
    table = destination.catalog.load(destination.table.table)
    if table is None:
        return None
    brought, oldest = None, None
    for snapshot in ancestors(table.metadata, destination.table.branch):
        oldest = snapshot
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if summary.get(PREFIX + "pipeline") != destination.pipeline:
            continue
        if int(summary[PREFIX + "batch"]) < batch_number:
            return brought
        brought = str(snapshot.snapshot_id)
    # The walk ended at the table's first snapshot, or where older ones have expired: then this may not be the one.
    return brought if oldest and oldest.parent_snapshot_id is None else None

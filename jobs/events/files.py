"""The files of a landed batch, as its table still has them."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.events.messages import DataFile
from jobs.iceberg.attempt import added_files
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

"""A catalog in a database that reads a metadata file once, and none that it has written: they never change, and grow
with every snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

# The newest so many, and of those before as many as have so few snapshots together.
_KEPT, _SNAPSHOTS = 16, 20_000


def _itself(entry: object, _memo: object = None) -> object:
    """For `copy.deepcopy`: a commit of pyiceberg's copies what is known of all snapshots, which never change."""
    return entry


for _kind in (Snapshot, SnapshotLogEntry):
    setattr(_kind, "__deepcopy__", _itself)  # noqa: B010


class RememberingCatalog(SqlCatalog):
    """pyiceberg's own, which reads a table's metadata file each time that it is asked for the table."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._known = OrderedDict[str, TableMetadata]()
        self._lock, self._snapshots = Lock(), 0

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        place: Any = orm_table.metadata_location
        with self._lock:
            metadata = self._known.get(place)
            if metadata is not None:
                self._known.move_to_end(place)
        if metadata is None:
            table = super()._convert_orm_to_iceberg(orm_table)
            self._remember(place, table.metadata)
            return table
        name: Any = orm_table.table_name
        namespace: Any = orm_table.table_namespace
        io = self._load_file_io(metadata.properties, place)
        return Table((*Catalog.identifier_to_tuple(namespace), name), metadata, place, io, self)

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        super()._write_metadata(metadata, io, metadata_path)
        self._remember(metadata_path, metadata)

    def _remember(self, place: str, metadata: TableMetadata) -> None:
        with self._lock:
            self._forget(self._known.pop(place, None))
            self._known[place] = metadata
            self._snapshots += 1 + len(metadata.snapshots)
            while len(self._known) > _KEPT and self._snapshots > _SNAPSHOTS:
                self._forget(self._known.popitem(last=False)[1])

    def _forget(self, metadata: TableMetadata | None) -> None:
        self._snapshots -= 1 + len(metadata.snapshots) if metadata else 0

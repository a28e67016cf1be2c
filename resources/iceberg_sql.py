"""A catalog in a database that remembers the metadata files that it has read or written: they never change, and grow
with every snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from threading import Lock
from typing import Any

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.typedef import Identifier
from sqlalchemy import Executable, bindparam, select

# This many metadata files are always remembered: those that were used last.
_KEPT = 16
# Older ones are forgotten while all remembered files together have more snapshots than this.
_SNAPSHOTS = 20_000


def _itself(entry: object, _memo: object = None) -> object:
    """For `copy.deepcopy`: a commit of pyiceberg's copies what is known of snapshots and files, which never change."""
    return entry


for _kind in (Snapshot, SnapshotLogEntry, MetadataLogEntry, StatisticsFile):
    setattr(_kind, "__deepcopy__", _itself)  # noqa: B010


class RememberingCatalog(SqlCatalog):
    """pyiceberg's own catalog, which by itself reads the metadata file each time that a table is loaded."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._known = OrderedDict[str, TableMetadata]()
        self._lock, self._snapshots = Lock(), 0

    def load_table(self, identifier: str | Identifier) -> Table:
        namespace, name = self.namespace_to_string(self.namespace_from(identifier)), self.table_name_from(identifier)
        with self.engine.connect() as connection:
            found = connection.execute(self._place, {"namespace": namespace, "name": name}).scalar()
        if not found:
            raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")
        return self._table(namespace, name, found)

    @cached_property
    def _place(self) -> Executable:
        """The query for the path of a table's metadata. pyiceberg's own is built, and its answer mapped, each time."""
        named = IcebergTables.table_namespace == bindparam("namespace"), IcebergTables.table_name == bindparam("name")
        asked = select(IcebergTables.metadata_location).where(IcebergTables.catalog_name == self.name, *named)
        only_tables = self._iceberg_type_filter()
        return asked if only_tables is None else asked.where(only_tables)

    def _table(self, namespace: str, name: str, place: str) -> Table:
        with self._lock:
            metadata = self._known.get(place)
            if metadata is not None:
                self._known.move_to_end(place)
        if metadata is None:
            file = self._load_file_io(location=place).new_input(place)
            metadata = FromInputFile.table_metadata(file)
            self._remember(place, metadata)
        io = self._load_file_io(metadata.properties, place)
        return Table((*self.identifier_to_tuple(namespace), name), metadata, place, io, self)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        row: Any = orm_table
        return self._table(row.table_namespace, row.table_name, row.metadata_location)

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

"""An Iceberg catalog in a folder, for tests that need no service."""

from __future__ import annotations

from pathlib import Path

from resources.connections import IcebergConnection
from resources.iceberg import IcebergCatalog


def lake_connection(folder: Path) -> IcebergConnection:
    (folder / "catalog.db").touch()
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    return IcebergConnection(kind="iceberg", type="sql", uri=uri, warehouse=warehouse)


def lake(folder: Path) -> IcebergCatalog:
    return IcebergCatalog("lake", lake_connection(folder))

"""An Iceberg catalog in a folder, for tests that need no service; and which files a table has, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from resources.connections import IcebergConnection
from resources.iceberg import IcebergCatalog


def lake_connection(folder: Path) -> IcebergConnection:
    (folder / "catalog.db").touch()
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    return IcebergConnection(kind="iceberg", type="sql", uri=uri, warehouse=warehouse)


def lake(folder: Path) -> IcebergCatalog:
    return IcebergCatalog("lake", lake_connection(folder))


def files_in(table: Table, folder: str = "") -> list[str]:
    """The paths of all files under this folder of a table."""
    scheme, netloc, path = PyArrowFileIO.parse_location(f"{table.location()}/{folder}".rstrip("/"))
    store = PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc)
    found = store.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    return [file.path for file in found if file.is_file]


@contextmanager
def rows_away(table: Table) -> Iterator[None]:
    """Within it the rows of a table in a folder cannot be read, while its catalog answers."""
    _, _, path = PyArrowFileIO.parse_location(f"{table.location()}/data")
    away = Path(path).rename(f"{path}-away")
    try:
        yield
    finally:
        away.rename(path)

"""An Iceberg catalog in a folder, for tests that need no service; and which files a table has, wherever they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import FileSelector, FileSystem
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


def with_metadata(folder: Path, identifier: str, changed: Mapping[str, object]) -> IcebergCatalog:
    """The catalog, opened again, after another engine has changed these parts of a table's metadata."""
    file = Path(lake(folder).require(identifier).metadata_location.removeprefix("file://"))
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    return lake(folder)


def files_in(table: Table, folder: str = "") -> list[str]:
    """The paths of all files under this folder of a table."""
    return _files_in(table, folder)[1]


@contextmanager
def rows_away(table: Table) -> Iterator[None]:
    """Within it the rows of a table cannot be read, while its catalog answers."""
    store, paths = _files_in(table, "data")
    for path in paths:
        store.move(path, f"{path}-away")
    try:
        yield
    finally:
        for path in paths:
            store.move(f"{path}-away", path)


def _files_in(table: Table, folder: str) -> tuple[FileSystem, list[str]]:
    scheme, netloc, path = PyArrowFileIO.parse_location(f"{table.location()}/{folder}".rstrip("/"))
    store = PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc)
    found = store.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    return store, [file.path for file in found if file.is_file]

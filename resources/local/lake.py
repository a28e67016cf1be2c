"""The local Iceberg lake: a catalog in one SQLite file, and files in a folder or in a local object store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from resources.local.fake_gcs import FakeGcs
from resources.local.object_store import ObjectStore
from resources.local.seaweed import Seaweed
from resources.local.service import Lake, Site

# The object stores that can run here.
STORES: tuple[ObjectStore, ...] = (Seaweed(), FakeGcs())


def store_of(lake: Lake) -> ObjectStore | None:
    """The store of this lake; None: its files are in a folder."""
    return next((store for store in STORES if store.name == lake), None)


def create_lake(home: Path) -> None:
    """Makes folder and catalog file. Write-ahead logging lets readers go on while a commit writes."""
    folder = home / "lake"
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "catalog.db", timeout=30)) as catalog:
        catalog.execute("PRAGMA journal_mode=WAL")


def lake_connection(site: Site) -> dict[str, Any]:
    """The `lake` entry of connections.yaml."""
    folder = site.home / "lake"
    store = store_of(site.lake)
    files = store.lake(site) if store else {"warehouse": f"file://{folder / 'warehouse'}"}
    return {"kind": "iceberg", "type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", **files}

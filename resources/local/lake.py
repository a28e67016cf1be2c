"""The local Iceberg lake: a catalog in one SQLite file and a warehouse folder. It needs no process."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def create_lake(home: Path) -> None:
    """Makes folder and catalog file. Write-ahead logging lets readers go on while a commit writes."""
    folder = home / "lake"
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "catalog.db", timeout=30)) as catalog:
        catalog.execute("PRAGMA journal_mode=WAL")


def lake_connection(home: Path) -> dict[str, Any]:
    """The `lake` entry of connections.yaml."""
    folder = home / "lake"
    return {
        "kind": "iceberg",
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }

"""Connections files of tests: what `batchmerge up` has written, with other entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def connection_entries(home: Path) -> dict[str, Any]:
    """What `batchmerge up` has written in this data folder, by name."""
    found: dict[str, Any] = yaml.safe_load((home / "connections.yaml").read_text())["connections"]
    return found


def write_connections(home: Path, folder: Path, **others: object) -> Path:
    """Writes these entries in place of, or beside, those of the data folder; in one step, for those who read it now."""
    file, new = folder / "connections.yaml", folder / "connections.new"
    new.write_text(yaml.safe_dump({"connections": {**connection_entries(home), **others}}))
    return new.replace(file)

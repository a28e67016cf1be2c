"""What a task needs of a table's metadata to read its files. It travels: what grows with every snapshot is left out."""

from __future__ import annotations

from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import create_mapping_from_schema

_NAME_MAPPING = "schema.name-mapping.default"


def readable(metadata: TableMetadata, snapshot: int | None = None) -> TableMetadata:
    """Metadata by which files are read, those without field ids by name; a scan needs its snapshot too."""
    named = metadata.properties.get(_NAME_MAPPING) or create_mapping_from_schema(metadata.schema()).model_dump_json()
    kept = [one for one in metadata.snapshots if one.snapshot_id == snapshot]
    none: dict[str, Any] = {"snapshot_log": [], "metadata_log": [], "refs": {}, "statistics": []}
    return metadata.model_copy(update={**none, "snapshots": kept, "properties": {_NAME_MAPPING: named}})

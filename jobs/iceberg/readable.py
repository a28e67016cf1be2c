"""The part of a table's metadata that tasks need to read its files, without what grows with every snapshot."""

from __future__ import annotations

from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import create_mapping_from_schema

_NAME_MAPPING = "schema.name-mapping.default"


def readable(metadata: TableMetadata, snapshot: int | None = None) -> TableMetadata:
    """Metadata that is enough to read files, also those without field ids (by name). Scans also need `snapshot`."""
    named = metadata.properties.get(_NAME_MAPPING) or create_mapping_from_schema(metadata.schema()).model_dump_json()
    kept = [one for one in metadata.snapshots if one.snapshot_id == snapshot]
    none: dict[str, Any] = {"snapshot_log": [], "metadata_log": [], "refs": {}, "statistics": []}
    return metadata.model_copy(update={**none, "snapshots": kept, "properties": {_NAME_MAPPING: named}})

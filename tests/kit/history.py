"""Metadata of Iceberg tables for tests of pure decisions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2


def table_metadata(
    snapshots: Sequence[tuple[int, int | None, Mapping[str, str]]],
    refs: Mapping[str, int],
    properties: Mapping[str, str] | None = None,
) -> TableMetadata:
    """A table with snapshots (id, parent, summary), where n was taken at 1000 n, and branches and tags.

    Args:
        refs: names that begin with `batchmerge_` or `tag` are tags.
    """
    return TableMetadataV2.model_validate(
        {
            "format-version": 2,
            "location": "file:///t",
            "last-column-id": 1,
            "last-updated-ms": 0,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "last-partition-id": 999,
            "last-sequence-number": len(snapshots),
            "current-snapshot-id": refs.get("main", -1),
            "properties": properties or {},
            "snapshots": [
                {
                    "snapshot-id": number,
                    **({"parent-snapshot-id": parent} if parent is not None else {}),
                    "sequence-number": turn,
                    "timestamp-ms": 1000 * number,
                    "manifest-list": f"file:///{uuid.uuid4()}",
                    "summary": {"operation": "append", **summary},
                }
                for turn, (number, parent, summary) in enumerate(snapshots)
            ],
            "refs": {
                name: {"snapshot-id": to, "type": "tag" if name.startswith(("batchmerge_", "tag")) else "branch"}
                for name, to in refs.items()
            },
        }
    )


def table(
    snapshots: Sequence[tuple[int, int | None, Mapping[str, str]]],
    refs: Mapping[str, int],
    properties: Mapping[str, str] | None = None,
) -> Table:
    """A table with such metadata, of which no file is there."""
    return Table(("n", "t"), table_metadata(snapshots, refs, properties), "", PyArrowFileIO(), NoopCatalog("none"))

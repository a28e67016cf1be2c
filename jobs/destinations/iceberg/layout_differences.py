"""The layout of an Iceberg table that exists, compared with what the pipeline file says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pyiceberg.table import Table

from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.layout_differences import differences
from jobs.iceberg.partition_text import Partition, parse_partition

WRITE_MODES = {"copy_on_write": "copy-on-write", "merge_on_read": "merge-on-read"}


def layout_differences(table: IcebergTable, load: Callable[[], Table | None]) -> Iterator[str]:
    """Options of the file that the table does not have (`differences`)."""
    names = {f"properties.{name}": name for name in table.properties}
    declared = {
        "partition_by": [str(parse_partition(text)) for text in table.partition_by],
        "sort_by": table.sort_by,
        "write": WRITE_MODES.get(table.write or ""),
        **{option: table.properties[name] for option, name in names.items()},
    }

    def present() -> dict[str, object] | None:
        found = load()
        if found is None:
            return None
        schema, properties = found.schema(), found.properties
        return {
            "partition_by": [
                _partition(f.transform, schema.find_column_name(f.source_id)) for f in found.spec().fields
            ],
            "sort_by": [schema.find_column_name(field.source_id) for field in found.sort_order().fields],
            "write": properties.get("write.merge.mode", WRITE_MODES["copy_on_write"]),
            **{option: properties.get(name) for option, name in names.items()},
            "properties.format-version": str(found.format_version),  # no property of the table's, once it is made
        }

    return differences(declared, present)


def _partition(transform: object, column: str | None) -> str:
    """As a pipeline file writes it; pyiceberg has ``bucket[16]``."""
    name, _, width = str(transform).rstrip("]").partition("[")
    return str(Partition(column or "", name, int(width) if re.fullmatch(r"\d+", width) else None))

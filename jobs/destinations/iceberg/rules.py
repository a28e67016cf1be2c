"""What Iceberg cannot do with the columns that a pipeline file declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from jobs.destinations.iceberg.columns import table_columns
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.iceberg.partition_text import parse_partition
from jobs.iceberg.unusable import unusable
from jobs.schema.types import type_name
from jobs.spec.pipeline import PipelineSpec
from resources.config_files.mistakes import Mistake

_MODE = "write.merge.mode"
# Metadata columns of Iceberg tables: https://iceberg.apache.org/spec/#reserved-field-ids
_RESERVED = {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
_SUITS = "use year, month, day or hour on dates and timestamps, bucket or truncate on whole numbers, decimals and text"


def mistakes(spec: PipelineSpec, table: IcebergTable) -> Iterator[Mistake]:
    """The mistakes, each with its path below the table's entry."""
    types = {column.name: column.table_type for column in table_columns(spec, table)}
    for name in types:
        if name.lower() in _RESERVED:
            yield Mistake((), f"{name} is a column of Iceberg's own", "give the column of `source` another name")
    yield from _partitions(table, types)
    yield from _writes(table)
    for name, remedy in unusable(table.properties):
        yield Mistake(("properties", name), f"{table.properties[name]!r} is no value that it can have", remedy)
    for number, name in enumerate(table.sort_by or ()):
        if name in types and pa.types.is_nested(types[name]):
            what = f"{name} is {type_name(types[name])}, which has no order"
            yield Mistake(("sort_by", number), what, "name a number, a text, a date or a timestamp")


def _writes(table: IcebergTable) -> Iterator[Mistake]:
    """Iceberg makes the table, and refuses the first merge that updates or deletes a row."""
    option = ("properties", _MODE) if _MODE in table.properties else ("write",)
    mode = table.properties.get(_MODE, (table.write or "").replace("_", "-"))
    if table.needs_key and mode == "merge-on-read" and table.properties.get("format-version") == "1":
        what = "there are no position deletes in format version 1, so no row could be updated or deleted"
        yield Mistake(option, what, "use copy_on_write, or format version 2")


def _partitions(table: IcebergTable, types: Mapping[str, pa.DataType]) -> Iterator[Mistake]:
    for number, text in enumerate(table.partition_by):
        partition = parse_partition(text)
        kind = types.get(partition.column) if partition else None
        if partition and kind is not None and not partition.suits(kind):
            how = "" if partition.transform == "identity" else f"{partition.transform} of "
            what = f"{partition.column} is {type_name(kind)}, and Iceberg has no partitions by {how}that"
            yield Mistake(("partition_by", number), what, _SUITS)

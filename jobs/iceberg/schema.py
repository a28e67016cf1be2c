"""Creating Iceberg tables and changing their schema and layout, from Arrow schemas."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import _ConvertToIcebergWithoutIDs, schema_to_pyarrow, visit_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyiceberg.types import IcebergType

from jobs.evolution import AddColumn, RelaxRequired, SchemaChange, WidenType, plain
from jobs.iceberg.partition_text import Partition, parse_partition
from resources.iceberg import require_version
from resources.iceberg_errors import catalog_errors

# The ends of partition fields' names, where they are not those of their transforms.
_ENDS = {"identity": "", "truncate": "_trunc"}


def iceberg_schema(columns: pa.Schema, identifiers: Sequence[str] = ()) -> Schema:
    """An Iceberg schema with fresh field ids; `identifiers` become its identifier fields."""
    schema = assign_fresh_schema_ids(visit_pyarrow(columns, _ConvertToIcebergWithoutIDs()))
    ids = [schema.find_field(name).field_id for name in identifiers]
    return Schema(*schema.fields, identifier_field_ids=ids)


def emptied(table: Table, columns: pa.Schema) -> tuple[list[TableRequirement], list[TableUpdate]]:
    """The commit that empties the table and gives it these columns; refused if another commit changed the columns.

    It removes the branches of attempts too: what they write has the columns of before.
    """
    metadata = table.metadata
    ids = count(metadata.last_column_id + 1)
    fresh = assign_fresh_schema_ids(iceberg_schema(columns), lambda: next(ids))
    schema = Schema(*fresh.fields, schema_id=1 + max(known.schema_id for known in metadata.schemas))
    return [AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id)], [
        *(RemoveSnapshotRefUpdate(ref_name=name) for name in sorted({"main", *metadata.refs})),
        AddSchemaUpdate(schema_=schema),
        SetCurrentSchemaUpdate(schema_id=-1),
    ]


def schema_at(table: Table, snapshot_id: int | None) -> Schema:
    """The schema in which Spark reads a snapshot: the one that it was made with; the present one if that is unknown, or
    for None."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    known = table.schemas().get(snapshot.schema_id) if snapshot and snapshot.schema_id is not None else None
    return known or table.schema()


def arrow_schema(table: Table, snapshot_id: int | None = None) -> pa.Schema:
    """The table's schema, or that of a snapshot (`schema_at`), in Arrow's types, without field ids and storage
    variants."""
    found = schema_to_pyarrow(schema_at(table, snapshot_id), include_field_ids=False)
    return pa.schema([pa.field(f.name, plain(f.type), f.nullable) for f in found])


def partition_spec(schema: Schema, partition_by: Sequence[str]) -> PartitionSpec:
    """`["day(scheduled)", "bucket(16, id)", "origin"]` as a partition spec.

    The rules of pipeline files (`jobs.destinations.iceberg.rules`) have checked each text and its column's type.
    """
    if not partition_by:
        return UNPARTITIONED_PARTITION_SPEC
    fields = []
    for number, text in enumerate(partition_by):
        partition = parse_partition(text)
        assert partition is not None, "checked when the pipeline file was loaded"
        name, transform = _transform(partition)
        fields.append(PartitionField(schema.find_field(partition.column).field_id, 1000 + number, transform, name))
    return PartitionSpec(*fields)


def sort_order(schema: Schema, sort_by: Sequence[str]) -> SortOrder:
    """Ascending by these columns, which are not nested."""
    if not sort_by:
        return UNSORTED_SORT_ORDER
    return SortOrder(
        *(SortField(source_id=schema.find_field(name).field_id, transform=IdentityTransform()) for name in sort_by)
    )


def _transform(partition: Partition) -> tuple[str, Transform[Any, Any]]:
    """The partition field's name and its transform."""
    end = _ENDS.get(partition.transform, f"_{partition.transform}")
    width = f"[{partition.width}]" if partition.width else ""
    return partition.column + end, parse_transform(partition.transform + width)


def apply_changes(table: Table, changes: Sequence[SchemaChange]) -> None:
    """Changes the table's schema in one commit; no commit for an empty list."""
    if not changes:
        return
    require_version(table.format_version, ".".join(table.name()))
    optional = {".".join(change.path) for change in changes if isinstance(change, RelaxRequired)}
    with catalog_errors(".".join(table.name())), table.update_schema() as update:
        # A nullable column cannot be an identifier field.
        update.set_identifier_fields(*(table.schema().identifier_field_names() - optional))
        for change in changes:
            if isinstance(change, AddColumn):
                update.add_column(change.path, _iceberg_type(change.type))
            elif isinstance(change, WidenType):
                update.update_column(change.path, field_type=_iceberg_type(change.new))
            elif isinstance(change, RelaxRequired):
                update.make_column_optional(change.path)


def _iceberg_type(kind: pa.DataType) -> IcebergType:
    return iceberg_schema(pa.schema([pa.field("c", kind)])).fields[0].field_type

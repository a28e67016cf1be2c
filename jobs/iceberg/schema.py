"""Creating Iceberg tables and changing their schema and layout, from Arrow schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import _ConvertToIcebergWithoutIDs, schema_to_pyarrow, visit_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import IcebergType

from jobs.evolution import AddColumn, RelaxRequired, SchemaChange, WidenType, plain
from jobs.iceberg.partition_text import REMEDY, parse_partition
from resources.errors import ConfigurationError
from resources.iceberg import catalog_errors

_TIMES: dict[str, Callable[[], Transform[Any, Any]]] = {
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}


def iceberg_schema(columns: pa.Schema, identifiers: Sequence[str] = ()) -> Schema:
    """An Iceberg schema with fresh field ids; `identifiers` become its identifier fields."""
    schema = assign_fresh_schema_ids(visit_pyarrow(columns, _ConvertToIcebergWithoutIDs()))
    ids = [schema.find_field(name).field_id for name in identifiers]
    return Schema(*schema.fields, identifier_field_ids=ids)


def arrow_schema(table: Table) -> pa.Schema:
    """The table's schema in Arrow's types, without field ids and storage variants."""
    found = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return pa.schema([pa.field(f.name, plain(f.type), f.nullable) for f in found])


def partition_spec(schema: Schema, partition_by: Sequence[str], table: str) -> PartitionSpec:
    """`["day(scheduled)", "bucket(16, id)", "origin"]` as a partition spec.

    Raises:
        ConfigurationError: not a transform, or an unknown column; says what is possible.
    """
    if not partition_by:
        return UNPARTITIONED_PARTITION_SPEC
    fields = []
    for number, text in enumerate(partition_by):
        column, name, transform = _transform(text, table)
        try:
            source = schema.find_field(column)
        except ValueError:
            raise ConfigurationError(
                f"partition_by names {column!r}, which is no column of the table",
                where=table,
                remedy=f"name one of {', '.join(f.name for f in schema.fields)}",
            ) from None
        if not transform.can_transform(source.field_type):
            raise ConfigurationError(
                f"partition_by {text!r} does not work on a column of type {source.field_type}",
                where=table,
                remedy="use year, month, day or hour on dates and timestamps, bucket or truncate on numbers and text",
            )
        fields.append(PartitionField(source.field_id, 1000 + number, transform, name))
    return PartitionSpec(*fields)


def sort_order(schema: Schema, sort_by: Sequence[str], table: str) -> SortOrder:
    """Ascending by these columns.

    Raises:
        ConfigurationError: an unknown column, or one that has no order.
    """
    if not sort_by:
        return UNSORTED_SORT_ORDER
    fields = []
    for column in sort_by:
        found = next((f for f in schema.fields if f.name == column), None)
        if found is None or not found.field_type.is_primitive:
            raise ConfigurationError(
                f"sort_by names {column!r}, which is no single-valued column of the table",
                where=table,
                remedy=f"name some of {', '.join(f.name for f in schema.fields if f.field_type.is_primitive)}",
            )
        fields.append(SortField(source_id=found.field_id, transform=IdentityTransform()))
    return SortOrder(*fields)


def _transform(text: str, table: str) -> tuple[str, str, Transform[Any, Any]]:
    """Column, partition field's name and transform."""
    found = parse_partition(text)
    if found is None:
        raise ConfigurationError(f"partition_by {text!r} is not understood", where=table, remedy=REMEDY)
    if found.transform in _TIMES:
        return found.column, f"{found.column}_{found.transform}", _TIMES[found.transform]()
    if found.transform == "bucket" and found.width:
        return found.column, f"{found.column}_bucket", BucketTransform(found.width)
    if found.transform == "truncate" and found.width:
        return found.column, f"{found.column}_trunc", TruncateTransform(found.width)
    return found.column, found.column, IdentityTransform()


def apply_changes(table: Table, changes: Sequence[SchemaChange]) -> None:
    """Changes the table's schema in one commit; nothing to do for an empty list."""
    if not changes:
        return
    with catalog_errors(".".join(table.name())), table.update_schema() as update:
        for change in changes:
            if isinstance(change, AddColumn):
                update.add_column(change.path, _iceberg_type(change.type))
            elif isinstance(change, WidenType):
                update.update_column(change.path, field_type=_iceberg_type(change.new))
            elif isinstance(change, RelaxRequired):
                update.make_column_optional(change.path)


def _iceberg_type(kind: pa.DataType) -> IcebergType:
    return iceberg_schema(pa.schema([pa.field("c", kind)])).fields[0].field_type

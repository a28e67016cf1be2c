"""The columns of the intermediate table, and which of them make a destination row. Pure, from the pipeline file.

================  ==========================================================================================
column            meaning
================  ==========================================================================================
``key``           struct of the key columns; null where the pipeline has no key or the record is bad
``value``         struct of the value's columns; null for a tombstone and for a bad record
``op``            ``upsert | insert | update | delete``; null for a bad record
``partitionTime``  the record's timestamp (UTC)
``i``             order within the batch, ascending by topic, partition, offset
``batchNumber``   the batch
``landedAt``      when the batch was planned (UTC)
``kafka``         struct: topic, partition, offset, timestamp
``error``         struct: stage, kind, message, key, value (bytes), headers (kept where the transform reads them);
                  null for a good record. The dead letters
``kept``          names of the value's columns that the change leaves as they were, null where it brings all; only
                  in pipelines whose changes may leave columns out (`jobs.spec.unchanged_columns`)
================  ==========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from jobs.schema.types import parse_columns
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.transform import HEADERS
from jobs.spec.unchanged_columns import unavailable

# The operations of a landed change; which of them are rows to write, and all of them.
ROWS = ("upsert", "insert", "update")
CHANGES = (*ROWS, "delete")

INSTANT = pa.timestamp("us", tz="UTC")
KAFKA = pa.struct(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", INSTANT),
    ]
)
ERROR = pa.struct(
    [
        pa.field("stage", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("message", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
KEPT = pa.field("kept", pa.list_(pa.field("element", pa.string(), True)))

_METADATA = {
    "topic": ("kafka.topic", pa.string()),
    "partition": ("kafka.partition", pa.int32()),
    "offset": ("kafka.offset", pa.int64()),
    "timestamp": ("kafka.timestamp", INSTANT),
    "batch": ("batchNumber", pa.int64()),
}


@dataclass(frozen=True)
class RowColumn:
    """One column of a destination row.

    Attributes:
        path: where it is in a landed row: ``key.<name>``, ``value.<name>``, or a metadata column's path.
        is_key: it is part of the key that identifies the row.
    """

    name: str
    type: pa.DataType
    nullable: bool
    path: tuple[str, ...]
    is_key: bool = False


def key_fields(spec: PipelineSpec) -> list[pa.Field]:
    """The key columns in the order of `changes.key.columns`; empty without a key."""
    if spec.changes.key is None:
        return []
    if spec.changes.key.source == "value":
        declared = parse_columns(spec.source.row)
    else:
        assert spec.source.key is not None, "checked when the pipeline file was loaded"
        declared = parse_columns(spec.source.key.columns)
    return [declared.field(name).with_nullable(True) for name in spec.changes.key.columns]


def value_fields(spec: PipelineSpec) -> list[pa.Field]:
    return list(parse_columns(spec.source.row))


def landing_schema(spec: PipelineSpec) -> pa.Schema:
    """The intermediate table's schema. Everything is optional: what is required, the decoder checks per record."""
    key = key_fields(spec)
    return pa.schema(
        [
            *([pa.field("key", pa.struct(key))] if key else []),
            pa.field("value", pa.struct([optional(f) for f in value_fields(spec)])),
            pa.field("op", pa.string()),
            pa.field("partitionTime", INSTANT),
            pa.field("i", pa.int64()),
            pa.field("batchNumber", pa.int64()),
            pa.field("landedAt", INSTANT),
            pa.field("kafka", KAFKA),
            pa.field("error", ERROR),
            *([KEPT] if names_unchanged_columns(spec) else []),
        ]
    )


def names_unchanged_columns(spec: PipelineSpec) -> bool:
    """Whether changes are landed with the names of the columns that they leave as they were."""
    return unavailable(spec) == "keep"


def row_columns(spec: PipelineSpec, metadata: list[str]) -> list[RowColumn]:
    """The columns of a destination row: key columns that the value does not have, the value's, then metadata."""
    key = {f.name: f for f in key_fields(spec)}
    op = spec.changes.op
    dropped = op.field if op and not op.keep else None
    values = [optional(f) if spec.force_optional else f for f in value_fields(spec) if f.name != dropped]
    in_value = {f.name for f in values}
    key_nullable = bool(spec.changes.key and spec.changes.key.nulls == "match")
    from_key = [
        RowColumn(f.name, f.type, key_nullable, ("key", f.name), is_key=True)
        for f in key.values()
        if f.name not in in_value
    ]
    from_value = [
        RowColumn(f.name, key[f.name].type, key_nullable, ("key", f.name), is_key=True)
        if f.name in key
        else RowColumn(f.name, f.type, f.nullable, ("value", f.name))
        for f in values
    ]
    added = [RowColumn(f"_{m}", _METADATA[m][1], True, tuple(_METADATA[m][0].split("."))) for m in metadata]
    return [*from_key, *from_value, *added]


def optional(field: pa.Field) -> pa.Field:
    """The field with itself and all that is nested in it optional."""
    return pa.field(field.name, _optional_type(field.type), True)


def _optional_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([optional(kind.field(n)) for n in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _optional_type(kind.value_type), True))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", _optional_type(kind.item_type), True))
    return kind

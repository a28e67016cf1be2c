"""The columns of the intermediate table. Pure, from the pipeline file.

================  ==========================================================================================
column            meaning
================  ==========================================================================================
``key``           struct of the key columns; null if the pipeline has no key or the key is bad. A dead letter has
                  it if it can be read: tables' rows of this key are out of date until a newer change is landed
``value``         struct of the value's columns; null for a tombstone and for a bad record
``op``            ``upsert | insert | update | delete``; null for a bad record
``partitionTime``  the record's timestamp (UTC)
``i``             order within the batch, ascending by topic, partition, offset
``batchNumber``   the batch
``landedAt``      when the batch was planned (UTC)
``kafka``         struct: topic, partition, offset, timestamp; key, headers and others where a table asks for them
``error``         struct: stage, kind, message, key, value (bytes), headers (kept where they are read);
                  null for a good record. The dead letters
``kept``          names of the value's columns that the change omits, so that rows keep theirs; null if it omits none.
                  Only in pipelines whose changes may omit columns (`jobs.spec.unchanged_columns`)
``move``          position of a primary-key change in the source's log, the same in its two records
                  (`jobs.decode.source_position`); null in others. Only in tables with ``kept``
``revision``      the batch that landed this reading of a record that was read again; null for the first reading.
                  Batch and `i` are those of the first reading
================  ==========================================================================================
"""

from __future__ import annotations

import pyarrow as pa

from jobs.schema.types import parse_columns
from jobs.spec import added_columns
from jobs.spec.columns import key_fields, optional
from jobs.spec.metadata import landed_on_request
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.spec.unchanged_columns import unavailable
from resources.kafka_records import HEADERS, INSTANT

# Operations that write a row.
ROWS = ("upsert", "insert", "update")
# All operations of a landed change.
CHANGES = (*ROWS, "delete")
# Operation of a record that is filtered out when it is read again; on a first reading such a record is not landed.
FILTERED = "filtered"
READINGS = (*CHANGES, FILTERED)
# More than a batch has positions (`batch.max_records`): batch times this plus position is one number of 63 bits, in
# their order, for two billion batches. Also in sql/spark/missing_rows.sql.j2.
POSITIONS = 2**32


def row_operations(table: Table) -> tuple[str, ...]:
    """Operations that write a row into this table."""
    return CHANGES if table.deletes_are_rows else ROWS


def operations(table: Table) -> tuple[str, ...]:
    """Operations of the changes that this table takes."""
    return CHANGES if table.loses_rows else row_operations(table)


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
# Marks an incomplete list: a dead letter's last header has this key if only some headers were read.
SOME_HEADERS = "__batchmerge.some_headers"
# Placeholder in `value` while no column is known: Iceberg has no struct without fields.
NO_COLUMN = pa.field(added_columns.NO_COLUMN, pa.bool_())
UNCHANGED = pa.field("kept", pa.list_(pa.field("element", pa.string(), True)))
MOVE = pa.field("move", pa.string())
REVISION = pa.field("revision", pa.int64())


def value_fields(spec: PipelineSpec) -> list[pa.Field]:
    return list(parse_columns(spec.source.row))


def landing_schema(spec: PipelineSpec) -> pa.Schema:
    """The intermediate table's schema. Everything is optional: what is required, the decoder checks per record."""
    key = key_fields(spec)
    return pa.schema(
        [
            *([pa.field("key", pa.struct(key))] if key else []),
            pa.field("value", pa.struct([optional(f) for f in value_fields(spec)] or [NO_COLUMN])),
            pa.field("op", pa.string()),
            pa.field("partitionTime", INSTANT),
            pa.field("i", pa.int64()),
            pa.field("batchNumber", pa.int64()),
            pa.field("landedAt", INSTANT),
            pa.field("kafka", kafka_type(spec)),
            pa.field("error", ERROR),
            *([UNCHANGED, MOVE] if names_unchanged_columns(spec) else []),
            REVISION,
        ]
    )


def kafka_type(spec: PipelineSpec) -> pa.StructType:
    return pa.struct([*KAFKA, *(pa.field(m.path[-1], m.type) for m in landed_on_request(spec))])


def names_unchanged_columns(spec: PipelineSpec) -> bool:
    """Whether changes are landed with the names of the columns that they omit."""
    return unavailable(spec) == "keep"

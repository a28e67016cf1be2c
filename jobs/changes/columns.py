"""The columns of the intermediate table. Pure, from the pipeline file.

================  ==========================================================================================
column            meaning
================  ==========================================================================================
``key``           struct of the key columns; null where the pipeline has no key or the key is bad. A dead letter
                  whose key can be read has it: that key is stale until a newer change of it is landed
``value``         struct of the value's columns; null for a tombstone and for a bad record
``op``            ``upsert | insert | update | delete``; null for a bad record
``partitionTime``  the record's timestamp (UTC)
``i``             order within the batch, ascending by topic, partition, offset
``batchNumber``   the batch
``landedAt``      when the batch was planned (UTC)
``kafka``         struct: topic, partition, offset, timestamp; key, headers and others where a table asks for them
``error``         struct: stage, kind, message, key, value (bytes), headers (kept where they are read);
                  null for a good record. The dead letters
``kept``          names of the value's columns that the change leaves as they were, null where it brings all; only
                  in pipelines whose changes may leave columns out (`jobs.spec.unchanged_columns`)
``move``          of the two records of a changed primary key: where the change stands in the source's log, the same in
                  both (`jobs.decode.source_position`); null elsewhere. Only where there is ``kept``
``revision``      of a record that was read again: the batch that landed this reading. Batch and `i` are those that
                  the record always had; null for the first reading
================  ==========================================================================================
"""

from __future__ import annotations

import pyarrow as pa

from jobs.schema.types import parse_columns
from jobs.spec import added_columns
from jobs.spec.columns import key_fields, optional
from jobs.spec.metadata import landed_on_request
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.unchanged_columns import unavailable
from resources.kafka_records import HEADERS, INSTANT

# The operations of a landed change; which of them are rows to write, and all of them.
ROWS = ("upsert", "insert", "update")
CHANGES = (*ROWS, "delete")
# Not an operation: a record that the pipeline drops on purpose. It is landed only where it is read again.
FILTERED = "filtered"
READINGS = (*CHANGES, FILTERED)

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
# The key of the last of a dead letter's headers where not all that its record has were read.
SOME_HEADERS = "__batchmerge.some_headers"
# Stands in a value of which no column is known yet: there are no structs without a field in tables.
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
    """Whether changes are landed with the names of the columns that they leave as they were."""
    return unavailable(spec) == "keep"

"""Batches that are landed without Kafka and Spark, in one commit: many in short time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate, _apply_table_update, _TableMetadataUpdateContext

from jobs.batch import Batch, CommittedState, Counts, LandedBatch, landed_to_properties, new_commit_id
from jobs.iceberg.file_writer import FileWriter, conformed
from jobs.iceberg.history import state_properties
from jobs.iceberg.new_files import NewFiles, data_file
from jobs.iceberg.staging import stage
from jobs.offsets import OffsetRange, TopicPartition
from jobs.pipeline import Pipeline
from jobs.watermark import Watermark
from tests.benchmarks._records import rows as varied
from tests.benchmarks._workload import PARTITIONS

_NO_TOPIC = "none"


def land_directly(p: Pipeline, count: int, rows: int, topic: str | None = None) -> None:
    """Lands batches of so many varied rows as snapshots of one file each: from the beginning of this topic, or of one
    that is in no Kafka. Each partition gets as many of a batch."""
    p.intermediate.prepare()
    table = p.intermediate.catalog.require(p.intermediate.identifier)
    known = p.kafka.describe([topic])[0] if topic else {_NO_TOPIC: "id"}
    files, each, before = NewFiles.of(table), rows // PARTITIONS, None
    metadata, updates = table.metadata, list[TableUpdate]()
    for number in range(1, count + 1):
        taken = OffsetRange((number - 1) * each, number * each)
        ranges = {TopicPartition(name, n): taken for name in known for n in range(PARTITIONS)}
        batch = Batch(p.name, number, new_commit_id(), before, ranges, known, 0, p.spec.meaning_hash)
        landed, before = LandedBatch(batch, Counts(read=rows, landed=rows), Watermark(), 0), batch.commit_id
        with FileWriter(files) as writer:
            writer.write(conformed(_columns(landed, next(iter(known)), taken), files.arrow_schema))
        added = [data_file(file.to_json(files), files) for file in writer.written]
        at = StaticTable(table.name(), metadata, table.metadata_location, table.io, table.catalog)
        made, _ = stage(at, "main", added, (), (), landed_to_properties(landed))
        metadata = _applied(metadata, made)
        updates += made
    mirrored = SetPropertiesUpdate(updates=state_properties(CommittedState.after(landed), "main"))
    p.intermediate.catalog.commit(table, [], [*updates, mirrored])


def _columns(landed: LandedBatch, topic: str, taken: OffsetRange) -> dict[str, pa.Array]:
    """Of landed rows; record n of the log is in partition n % 4, and a batch has them partition by partition."""
    each, rows = len(taken), landed.counts.landed
    partitions = np.repeat(np.arange(PARTITIONS), each)
    offsets = np.tile(np.arange(taken.start, taken.end), PARTITIONS)
    ids = offsets * PARTITIONS + partitions
    now = datetime.now(UTC)
    kafka: dict[str, Any] = {
        "topic": pa.array([topic] * rows),
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets),
        "timestamp": pa.array([now] * rows, pa.timestamp("us", "UTC")),
    }
    return {
        "key": pa.StructArray.from_arrays([pa.array(ids)], ["id"]),
        "value": varied(ids).to_struct_array().combine_chunks(),
        "op": pa.array(["upsert"] * rows),
        "partitionTime": kafka["timestamp"],
        "i": pa.array(np.arange(rows)),
        "batchNumber": pa.array(np.full(rows, landed.batch.number)),
        "kafka": pa.StructArray.from_arrays(list(kafka.values()), list(kafka)),
    }


def _applied(metadata: TableMetadata, updates: list[TableUpdate]) -> TableMetadata:
    """The metadata with these updates; pyiceberg's own function copies all of it each time."""
    context = _TableMetadataUpdateContext()
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    return metadata

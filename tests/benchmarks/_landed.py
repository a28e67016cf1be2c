"""Batches that are landed without Kafka and Spark, in one commit: many in short time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate, _apply_table_update, _TableMetadataUpdateContext

from jobs.batch import Batch, CommittedState, Counts, LandedBatch, new_commit_id
from jobs.iceberg.file_writer import writing
from jobs.iceberg.history import state_properties
from jobs.iceberg.new_files import NewFiles, data_file
from jobs.iceberg.staging import stage
from jobs.landed_properties import landed_to_properties
from jobs.offsets import OffsetRange, TopicPartition
from jobs.pipeline import Pipeline
from jobs.watermark import Watermark
from tests.benchmarks._records import rows as varied
from tests.benchmarks._workload import PARTITIONS

_NO_TOPIC = "none"
_PLACES = tuple(TopicPartition(_NO_TOPIC, n) for n in range(PARTITIONS))


def land_directly(
    p: Pipeline, count: int, rows: int, topic: str | None = None, places: Sequence[TopicPartition] = _PLACES
) -> None:
    """Lands batches of so many varied rows as snapshots of one file each: from the beginning of this topic, or of
    topic-partitions that are in no Kafka. Each of them gets as many of a batch."""
    p.intermediate.prepare()
    table = p.intermediate.catalog.require(p.intermediate.identifier)
    known = p.kafka.describe([topic])[0] if topic else {tp.topic: f"id of {tp.topic}" for tp in places}
    places = [TopicPartition(topic, n) for n in range(PARTITIONS)] if topic else sorted(places)
    files, each, before = NewFiles.of(table), rows // len(places), None
    metadata, updates = table.metadata, list[TableUpdate]()
    for number in range(1, count + 1):
        taken = OffsetRange((number - 1) * each, number * each)
        ranges = dict.fromkeys(places, taken)
        batch = Batch(p.name, number, new_commit_id(), before, ranges, known, 0, p.spec.meaning_hash)
        landed, before = LandedBatch(batch, Counts(read=rows, landed=rows), Watermark(), 0), batch.commit_id
        with writing(files) as writer:
            writer.write(_columns(landed, places, taken))
        added = [data_file(file, files) for file in writer.written]
        at = StaticTable(table.name(), metadata, table.metadata_location, table.io, table.catalog)
        made, _ = stage(at, "main", added, (), (), landed_to_properties(landed))
        metadata = _applied(metadata, made)
        updates += made
    mirrored = SetPropertiesUpdate(updates=state_properties(CommittedState.after(landed), "main"))
    p.intermediate.catalog.commit(table, [], [*updates, mirrored])


def _columns(landed: LandedBatch, places: Sequence[TopicPartition], taken: OffsetRange) -> dict[str, pa.Array]:
    """Of landed rows; record n of the log is in place n % their number, and a batch has them place by place."""
    each, rows = len(taken), landed.counts.landed
    numbers = np.repeat(np.arange(len(places)), each)
    offsets = np.tile(np.arange(taken.start, taken.end), len(places))
    ids = offsets * len(places) + numbers
    now = datetime.now(UTC)
    kafka: dict[str, Any] = {
        "topic": pa.array([tp.topic for tp in places]).take(pa.array(numbers)),
        "partition": pa.array([tp.partition for tp in places], pa.int32()).take(pa.array(numbers)),
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

"""The landing job: Kafka records of a batch's ranges, decoded in Arrow batches, appended to the attempt's branch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from jobs.batch import Batch
from jobs.decode.base import Decoder
from jobs.decode.decoders import decoder_for
from jobs.destinations.iceberg.attempt import Attempt
from jobs.landing.columns import key_fields, landing_schema
from jobs.landing.records import Operations, RecordReader
from jobs.offsets import TopicPartition, total
from jobs.schema.types import parse_columns
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.source import Format
from resources.kafka import KafkaCluster

_CONSTANT = ("batchNumber", "landedAt")
# Below this many offsets one task per topic-partition is enough.
_SPLIT_FROM = 200_000


@dataclass(frozen=True)
class Written:
    """What the landing job counted while it ran.

    Attributes:
        read: records, counted before they were decoded.
        filtered: records that the pipeline leaves out on purpose, counted where they are left out.
    """

    read: int
    filtered: int


def write_records(
    spark: SparkSession, kafka: KafkaCluster, spec: PipelineSpec, batch: Batch, attempt: Attempt
) -> Written:
    """Appends the batch's records to the attempt's branch, in one pass over Kafka."""
    if not total(batch.ranges):
        return Written(read=0, filtered=0)
    counted = Observation()
    schema = _as_stored(landing_schema(spec), attempt.schema)
    shaped = _kafka_records(spark, kafka, batch).mapInArrow(
        _plain_function(record_reader(spec, batch, schema.field("value").type)), _spark_type(_shaped(schema))
    )
    op = F.col("op")
    shaped = shaped.observe(
        counted,
        F.coalesce(F.sum(F.when(op == RecordReader.READ, F.col("i"))), F.lit(0)).alias("read"),
        F.count_if(op == RecordReader.FILTERED).alias("filtered"),
    )
    landed = shaped.where(op.isNull() | ~op.isin(RecordReader.READ, RecordReader.FILTERED))
    landed = landed.withColumns(
        {
            "batchNumber": F.lit(batch.number).cast("bigint"),
            "landedAt": F.lit(datetime.fromtimestamp(batch.planned_at / 1000, UTC)),
        }
    )
    writer = landed.select(schema.names).writeTo(".".join(f"`{part}`" for part in attempt.path))
    for key, value in attempt.summary.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()
    return Written(read=counted.get["read"], filtered=counted.get["filtered"])


def record_reader(spec: PipelineSpec, batch: Batch, value_type: pa.DataType) -> RecordReader:
    """The function that Spark's workers apply to the batch's records; `value_type` is the intermediate table's."""
    key, op = spec.changes.key, spec.changes.op
    position, first = 0, {}
    for tp in sorted(batch.ranges):
        first[tp] = position
        position += len(batch.ranges[tp])
    return RecordReader(
        key_decoder=_decoder(spec.source.key) if key and key.source == "kafka_key" and spec.source.key else None,
        value_decoder=_decoder(spec.source.value),
        key_columns=tuple(key.columns) if key else (),
        key_from_value=bool(key) and key.source == "value" if key else False,
        refuse_null_keys=key.nulls == "refuse" if key else False,
        operations=Operations(op.field, tuple(op.insert), tuple(op.update), tuple(op.delete)) if op else None,
        first_position=first,
        start={tp: r.start for tp, r in batch.ranges.items()},
        key_type=pa.struct(key_fields(spec)) if key else None,
        value_type=value_type,
    )


def _decoder(declared: Format) -> Decoder:
    return decoder_for(declared.format, pa.struct(list(parse_columns(declared.columns))))


def _kafka_records(spark: SparkSession, kafka: KafkaCluster, batch: Batch) -> DataFrame:
    """Exactly the records of the ranges; Spark fails rather than leaves out one that is gone (`failOnDataLoss`)."""
    ranges = {tp: r for tp, r in batch.ranges.items() if len(r)}
    options = {
        **kafka.spark_options(),
        "assign": json.dumps(_by_topic(dict.fromkeys(ranges, 0), as_list=True)),
        "startingOffsets": json.dumps(_by_topic({tp: r.start for tp, r in ranges.items()})),
        "endingOffsets": json.dumps(_by_topic({tp: r.end for tp, r in ranges.items()})),
        "failOnDataLoss": "true",
    }
    if sum(map(len, ranges.values())) > _SPLIT_FROM:
        options["minPartitions"] = "4"
    frame = spark.read.format("kafka").options(**options).load()
    return frame.select("key", "value", "topic", "partition", "offset", "timestamp")


def _by_topic(values: Mapping[TopicPartition, int], as_list: bool = False) -> dict[str, object]:
    found: dict[str, dict[str, int]] = {}
    for tp, value in values.items():
        found.setdefault(tp.topic, {})[str(tp.partition)] = value
    return {t: [int(p) for p in ps] for t, ps in found.items()} if as_list else dict(found)


def _as_stored(declared: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The declared columns with the type that `value` has in the table: columns that are no longer declared stay."""
    return declared.set(declared.get_field_index("value"), table.field("value"))


def _shaped(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f for f in schema if f.name not in _CONSTANT])


def _spark_type(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _plain_function(reader: RecordReader) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Spark wants a function, not a callable object."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return reader(batches)

    return read

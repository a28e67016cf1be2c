"""The records of a batch in Spark: exactly its ranges from Kafka, decoded in Arrow batches, as landed rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from jobs.batch import Batch
from jobs.changes.columns import KEPT, landing_schema
from jobs.landing.readers import record_reader
from jobs.landing.records import RecordReader
from jobs.landing.registry_schemas import Registries
from jobs.landing.transform import Coordinates, error_class, failing_records, transformed
from jobs.offsets import OffsetRange, TopicPartition
from jobs.plan import refuse_other_topics
from jobs.spec.pipeline import PipelineSpec
from resources.kafka import KafkaCluster

_CONSTANT = ("batchNumber", "landedAt", "revision")
# Below this many offsets one task per topic-partition is enough.
_SPLIT_FROM = 200_000


@dataclass(frozen=True)
class BatchRecords:
    """The records of one batch, decoded and transformed.

    Attributes:
        table: the columns of the table that they are written to; it may have more than the pipeline file declares.
        registries: the Schema Registries that the records' schemas are in.
        refused: records that the transform was found to fail on, with Spark's error class.
    """

    kafka: KafkaCluster
    spec: PipelineSpec
    batch: Batch
    table: pa.Schema
    registries: Registries = field(default_factory=Registries)
    refused: dict[Coordinates, str] = field(default_factory=dict)

    def shaped(self, spark: SparkSession) -> DataFrame:
        """Landed rows of all records (`jobs.changes.columns`), and the reports of the tasks among them."""
        schema = landing_schema(self.spec)
        schema = schema.set(schema.get_field_index("value"), self.table.field("value"))
        if KEPT.name in self.table.names and KEPT.name not in schema.names:
            schema = schema.append(KEPT)
        resolved = self.spec.source.resolved
        headers = resolved is not None and resolved.mentions("_headers")
        records = _kafka_records(spark, self.kafka, self.batch, headers)
        schemas = self.registries.schemas_of(self.spec.source, records)
        reader = record_reader(self.spec, self.batch, self.table, schemas)
        if resolved:
            records = transformed(records, resolved, reader, self.refused)
        shaped = records.mapInArrow(_plain_function(reader), _spark_type(_shaped(schema)))
        return shaped.withColumns(
            {
                "batchNumber": F.lit(self.batch.number).cast("bigint"),
                "landedAt": F.lit(datetime.fromtimestamp(self.batch.planned_at / 1000, UTC)),
                "revision": F.lit(None).cast("bigint"),
            }
        ).select(schema.names)

    def check_topics(self) -> None:
        """After the records were read.

        Raises:
            TopicRecreated: they may be those of another topic than the batch was planned for.
        """
        topics = sorted({tp.topic for tp, r in self.batch.ranges.items() if len(r)})
        if topics:
            refuse_other_topics(self.batch, self.kafka.describe(topics)[0])

    def find_failing(self, spark: SparkSession, problem: PySparkException) -> None:
        """Finds the records that the transform fails on; raises the problem where that is not its cause."""
        if self.spec.source.resolved is None or error_class(problem) is None or self.refused:
            raise problem

        def probe(ranges: Mapping[TopicPartition, OffsetRange]) -> None:
            part = replace(self, batch=replace(self.batch, ranges=ranges), refused={})
            # Positions do not matter here, only whether every record can be evaluated.
            part.shaped(spark).agg(F.count(F.hash("value"))).collect()

        self.refused.update(failing_records(self.batch.ranges, probe))

    def bad(self, spark: SparkSession) -> DataFrame:
        """Only the bad records, read again."""
        return self.shaped(spark).where(F.col("error").isNotNull())


def _kafka_records(spark: SparkSession, kafka: KafkaCluster, batch: Batch, headers: bool) -> DataFrame:
    """Exactly the records of the ranges; Spark fails rather than leaves out one that is gone (`failOnDataLoss`)."""
    ranges = {tp: r for tp, r in batch.ranges.items() if len(r)}
    options = {
        **kafka.spark_options(),
        "assign": json.dumps(_by_topic(dict.fromkeys(ranges, 0), as_list=True)),
        "startingOffsets": json.dumps(_by_topic({tp: r.start for tp, r in ranges.items()})),
        "endingOffsets": json.dumps(_by_topic({tp: r.end for tp, r in ranges.items()})),
        "failOnDataLoss": "true",
        "includeHeaders": str(headers).lower(),
    }
    if sum(map(len, ranges.values())) > _SPLIT_FROM:
        options["minPartitions"] = "4"
    frame = spark.read.format("kafka").options(**options).load()
    most = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    if len(ranges) > most:
        # Not a task and a data file for each of 5,000 topic-partitions.
        frame = frame.coalesce(most)
    return frame.select("key", "value", "topic", "partition", "offset", "timestamp", *(["headers"] if headers else []))


def _by_topic(values: Mapping[TopicPartition, int], as_list: bool = False) -> dict[str, object]:
    found: dict[str, dict[str, int]] = {}
    for tp, value in values.items():
        found.setdefault(tp.topic, {})[str(tp.partition)] = value
    return {t: [int(p) for p in ps] for t, ps in found.items()} if as_list else dict(found)


def _shaped(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f for f in schema if f.name not in _CONSTANT])


def _spark_type(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _plain_function(reader: RecordReader) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Spark wants a function, not a callable object."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return reader(batches)

    return read

"""The records of a batch in Spark: exactly its ranges from Kafka, decoded in Arrow batches, as landed rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StructType

from jobs.batch import Batch
from jobs.changes.columns import KEPT, landing_schema
from jobs.decode.registered import Ids
from jobs.iceberg.new_files import NewFiles
from jobs.landing.new_tables import NameRule
from jobs.landing.places import Places
from jobs.landing.readers import record_reader
from jobs.landing.records import RecordReader
from jobs.landing.registry_schemas import Registries, Schemas
from jobs.landing.splits import Read, plan_reads
from jobs.landing.task import LandingTask, Selection
from jobs.landing.task_report import TaskReport
from jobs.landing.transform import Coordinates, error_class, failing_records, transformed
from jobs.offsets import OffsetRange, TopicPartition, total
from jobs.plan import refuse_other_topics
from jobs.spark_tasks import plain_function, told_by_tasks
from jobs.spec.metadata import INSTANT, reads_headers
from jobs.spec.pipeline import PipelineSpec
from resources.kafka import KafkaCluster
from resources.spark import parallelism


@dataclass(frozen=True)
class BatchRecords:
    """The records of one batch, decoded and transformed.

    Attributes:
        table: the columns of the table that they are written to; it may have more than the pipeline file declares.
        registries: the Schema Registries that the records' schemas are in.
        schema_ids: those that earlier batches had.
        refused: records that the transform was found to fail on, with Spark's error class.
        refused_fields: under `unknown_fields: add`, why fields could be no columns; None: these are still to be found.
        names: where records name tables, what becomes of new names.
        places: of records that are read once more (`jobs.landing.places`); None: the batch's own.
        revision: the batch that lands them then.
    """

    kafka: KafkaCluster
    spec: PipelineSpec
    batch: Batch
    table: pa.Schema
    registries: Registries = field(default_factory=Registries)
    refused: dict[Coordinates, str] = field(default_factory=dict)
    refused_fields: Mapping[str, str] | None = None
    names: NameRule | None = None
    places: Places | None = None
    revision: int | None = None
    schema_ids: Ids = field(default_factory=dict)

    @property
    def readings(self) -> int:
        """How many there are at most: offsets, or places."""
        return self.places.total if self.places else total(self.batch.ranges)

    def names_after(self, report: TaskReport) -> NameRule | None:
        """What becomes of the names that were brought, where they have to be read once more."""
        return self.names.after(report.names, self.spec) if self.names else None

    def shaped(self, spark: SparkSession) -> DataFrame:
        """Landed rows of all records (`jobs.changes.columns`)."""
        schema = self._schema
        reader, records = self._read(spark)
        shaped = records.mapInArrow(plain_function(reader), _spark_type(_without(schema, self._constants)))
        constants = {n: F.lit(v.as_py()).cast(from_arrow_type(v.type)) for n, v in self._constants.items()}
        return shaped.withColumns(constants).select(schema.names)

    def write(self, spark: SparkSession, where: str, selection: Selection, files: NewFiles) -> list[TaskReport]:
        """Has Spark's tasks write the selected records, in one pass over Kafka; returns what each of them tells."""

        def once(schemas: Schemas) -> list[TaskReport]:
            reader, records = self._read(spark, schemas)
            task = LandingTask(where, reader, selection, files, self._constants)
            return [TaskReport.from_text(text) for text in told_by_tasks(records, task)]

        return self.registries.read(self.schema_ids, once)

    @property
    def _schema(self) -> pa.Schema:
        """Of landed rows in this table."""
        schema = landing_schema(self.spec)
        for name in ("value", "kafka"):
            schema = schema.set(schema.get_field_index(name), self.table.field(name))
        if KEPT.name in self.table.names and KEPT.name not in schema.names:
            schema = schema.append(KEPT)
        return schema

    @property
    def _constants(self) -> dict[str, pa.Scalar]:
        planned_at = datetime.fromtimestamp(self.batch.planned_at / 1000, UTC)
        same = {
            "landedAt": pa.scalar(planned_at, INSTANT),
            "revision": pa.scalar(self.revision, pa.int64()),
        }
        return same if self.places else {"batchNumber": pa.scalar(self.batch.number, pa.int64()), **same}

    def _read(self, spark: SparkSession, schemas: Schemas | None = None) -> tuple[RecordReader, DataFrame]:
        """The batch's records, transformed where the pipeline has a transform, and the reader that shapes them."""
        resolved = self.spec.source.resolved
        records = _kafka_records(spark, self.kafka, self.batch, reads_headers(self.spec))
        if schemas is None:
            schemas = self.registries.schemas_of(self.spec.source, records)
        reader = record_reader(self.spec, self.batch, self.table, schemas, self.refused_fields, self.names)
        reader = replace(reader, places=self.places)
        return reader, transformed(records, resolved, reader, self.refused) if resolved else records

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
    reads = plan_reads(batch.ranges, parallelism(spark))
    frames = [_frame(spark, kafka, read, headers) for read in reads]
    names = ["key", "value", "topic", "partition", "offset", "timestamp", *(["headers"] if headers else [])]
    return reduce(DataFrame.unionAll, frames).select(*names)


def _frame(spark: SparkSession, kafka: KafkaCluster, read: Read, headers: bool) -> DataFrame:
    options = {
        **kafka.spark_options(),
        "assign": json.dumps(_by_topic(dict.fromkeys(read.ranges, 0), as_list=True)),
        "startingOffsets": json.dumps(_by_topic({tp: r.start for tp, r in read.ranges.items()})),
        "endingOffsets": json.dumps(_by_topic({tp: r.end for tp, r in read.ranges.items()})),
        "failOnDataLoss": "true",
        "includeHeaders": str(headers).lower(),
    }
    if read.pieces:
        options["minPartitions"] = str(read.pieces)
    frame = spark.read.format("kafka").options(**options).load()
    return frame.coalesce(read.tasks) if read.tasks else frame


def _by_topic(values: Mapping[TopicPartition, int], as_list: bool = False) -> dict[str, object]:
    found: dict[str, dict[str, int]] = {}
    for tp, value in values.items():
        found.setdefault(tp.topic, {})[str(tp.partition)] = value
    return {t: [int(p) for p in ps] for t, ps in found.items()} if as_list else dict(found)


def _without(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    return pa.schema([f for f in schema if f.name not in names])


def _spark_type(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)

"""The landing job: Kafka records of a batch's ranges, decoded in Arrow batches, appended to the attempt's branch."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from jobs.batch import Batch
from jobs.changes.columns import KEPT, key_fields, landing_schema, value_fields
from jobs.changes.routing import route_filters
from jobs.decode.base import Decoder
from jobs.decode.decoders import decoder_for
from jobs.decode.envelope import Enveloped, EnvelopeRules
from jobs.decode.extended_json import MongoKey
from jobs.iceberg import snapshot_summary
from jobs.iceberg.attempt import Attempt
from jobs.landing.records import Operations, RecordReader
from jobs.landing.schema_ids import Registries, Schemas
from jobs.landing.transforming import Coordinates, error_class, failing_records, transformed
from jobs.offsets import OffsetRange, TopicPartition, total
from jobs.spec.formats import Encoding, Format
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.unchanged_columns import envelope_rules
from resources.kafka import KafkaCluster

_LOG = logging.getLogger("batchmerge")

_CONSTANT = ("batchNumber", "landedAt")
# Below this many offsets one task per topic-partition is enough.
_SPLIT_FROM = 200_000


@dataclass(frozen=True)
class Written:
    """What the landing job counted while it ran, each where it went by.

    Attributes:
        read: records, counted by the workers before they decode them.
        landed, quarantined, filtered: what became of them, counted after.
        newest: the newest record timestamp per topic-partition, in milliseconds, whatever became of the record.
    """

    read: int = 0
    landed: int = 0
    quarantined: int = 0
    filtered: int = 0
    newest: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """Which of the shaped records are written, and as which columns.

    Attributes:
        operations: the ops whose records are written; any other op counts as filtered.
        bad_records: dead letters are written.
    """

    operations: tuple[str, ...]
    bad_records: bool
    columns: Callable[[DataFrame], DataFrame]


def write_records(spark: SparkSession, source: LandingSource, attempt: Attempt, selection: Selection) -> Written:
    """Appends the selected records of the batch to the attempt's branch, in one pass over Kafka."""
    if not total(source.batch.ranges):
        return Written()
    shaped = source.shaped(spark)
    counted = Observation()
    op, error = F.col("op"), F.col("error")
    wanted = F.coalesce(op.isin(*selection.operations), F.lit(False)) if selection.operations else F.lit(False)
    what = _counts(wanted)
    kept = shaped.observe(counted, *what).where(wanted | (error.isNotNull() & F.lit(selection.bad_records)))
    rows = selection.columns(kept)
    try:
        snapshot_summary.append(rows, attempt.path, attempt.summary)
    except PySparkException as problem:
        source.find_failing(spark, problem)
        return write_records(spark, source, attempt, selection)
    # Spark Connect waits 100 ms for what was observed and then answers without it; a loaded server can be later than
    # that (seen). The same counts then come from a second look at the same ranges, which is slower and as good.
    found = counted.get or _counted_again(shaped, what, attempt)
    read, newest = _sum_up(found["reports"])
    return Written(read, found["landed"], found["quarantined"], found["filtered"], newest)


def _counted_again(shaped: DataFrame, what: list[Column], attempt: Attempt) -> dict[str, Any]:
    _LOG.info("%s: the server gave no counts with the write; reading the ranges again", attempt.identifier)
    return shaped.agg(*what).collect()[0].asDict()


def _counts(wanted: Column) -> list[Column]:
    """What is counted over the shaped rows, each on its own."""
    op, error = F.col("op"), F.col("error")
    is_report = op == RecordReader.READ
    reports = F.collect_list(F.when(is_report, F.to_json(F.struct("kafka", "i"))))
    return [
        F.array_join(reports, "\n").alias("reports"),
        F.count_if(wanted).alias("landed"),
        F.count_if(error.isNotNull()).alias("quarantined"),
        F.count_if(op.isNotNull() & ~is_report & ~wanted).alias("filtered"),
    ]


def _sum_up(reports: str) -> tuple[int, dict[TopicPartition, int]]:
    """Records and newest timestamps of all tasks; one line per task and topic-partition."""
    read, newest = 0, dict[TopicPartition, int]()
    for line in reports.splitlines():
        report = json.loads(line)
        tp = TopicPartition(report["kafka"]["topic"], report["kafka"]["partition"])
        time = datetime.fromisoformat(report["kafka"]["timestamp"])
        milliseconds = int(time.timestamp() * 1000)
        read, newest[tp] = read + report["i"], max(milliseconds, newest.get(tp, milliseconds))
    return read, newest


@dataclass(frozen=True)
class LandingSource:
    """The records of one batch.

    Attributes:
        value_type: the `value` struct as the table that is written has it.
        keeps: that table has the column `kept`, be it from an earlier pipeline file.
        registries: the Schema Registries that the records' schemas are in.
        refused: records that the transform was found to fail on, with Spark's error class.
    """

    kafka: KafkaCluster
    spec: PipelineSpec
    batch: Batch
    value_type: pa.DataType
    registries: Registries = field(default_factory=Registries)
    keeps: bool = False
    refused: dict[Coordinates, str] = field(default_factory=dict)

    def shaped(self, spark: SparkSession) -> DataFrame:
        """Landed rows of all records (`jobs.changes.columns`), and the reports of the tasks among them."""
        schema = landing_schema(self.spec)
        schema = schema.set(schema.get_field_index("value"), pa.field("value", self.value_type))
        if self.keeps and KEPT.name not in schema.names:
            schema = schema.append(KEPT)
        resolved = self.spec.source.resolved
        headers = resolved is not None and resolved.mentions("_headers")
        records = _kafka_records(spark, self.kafka, self.batch, headers)
        schemas = self.registries.schemas_of(self.spec.source, records)
        reader = record_reader(self.spec, self.batch, self.value_type, schemas, self.keeps)
        if resolved:
            records = transformed(records, resolved, reader, self.refused)
        shaped = records.mapInArrow(_plain_function(reader), _spark_type(_shaped(schema)))
        return shaped.withColumns(
            {
                "batchNumber": F.lit(self.batch.number).cast("bigint"),
                "landedAt": F.lit(datetime.fromtimestamp(self.batch.planned_at / 1000, UTC)),
            }
        ).select(schema.names)

    def find_failing(self, spark: SparkSession, problem: PySparkException) -> None:
        """Takes down which records the transform fails on; raises the problem where that is not its cause."""
        if self.spec.source.resolved is None or error_class(problem) is None or self.refused:
            raise problem

        def probe(ranges: Mapping[TopicPartition, OffsetRange]) -> None:
            part = replace(self, batch=replace(self.batch, ranges=ranges), refused={})
            # The positions of the whole batch are of no interest here, only whether all of it can be evaluated.
            part.shaped(spark).agg(F.count(F.hash("value"))).collect()

        self.refused.update(failing_records(self.batch.ranges, probe))

    def bad(self, spark: SparkSession) -> DataFrame:
        """Only the bad records, read again."""
        return self.shaped(spark).where(F.col("error").isNotNull())


def record_reader(
    spec: PipelineSpec,
    batch: Batch,
    value_type: pa.DataType,
    schemas: Schemas | None = None,
    keeps: bool = False,
) -> RecordReader:
    """The function that Spark's workers apply to the batch's records; `value_type` is the intermediate table's.

    Args:
        schemas: those of the records, by registry and id, where they name any.
        keeps: the intermediate table has the column `kept`.
    """
    key, op, source = spec.changes.key, spec.changes.op, spec.source
    key_format = source.key if source.transform or (key and key.source == "kafka_key") else None
    rules = envelope_rules(spec)
    position, first = 0, {}
    for tp in sorted(batch.ranges):
        first[tp] = position
        position += len(batch.ranges[tp])
    return RecordReader(
        key_decoder=decoder_of(key_format, key_format, schemas, is_key=True, ignore_case=spec.ignore_case)
        if key_format
        else None,
        value_decoder=decoder_of(source.value, source.value, schemas, ignore_case=spec.ignore_case, rules=rules),
        key_columns=tuple(key.columns) if key else (),
        key_from_value=bool(key) and key.source == "value" if key else False,
        refuse_null_keys=key.nulls == "refuse" if key else False,
        operations=Operations(op.field, tuple(op.insert), tuple(op.update), tuple(op.delete)) if op else None,
        first_position=first,
        start={tp: r.start for tp, r in batch.ranges.items()},
        key_type=pa.struct(key_fields(spec)) if key else None,
        value_type=value_type,
        keeps=keeps,
        required=tuple(f.name for f in value_fields(spec) if not f.nullable) if source.transform else (),
        routes=route_filters(spec),
        topic_decoders={
            topic: {
                column: decoder_of(encoding, columns, schemas, column == "key", spec.ignore_case, rules)
                for column, encoding, columns in (("key", own.key, key_format), ("value", own.value, source.value))
                if encoding and columns
            }
            for topic, own in source.per_topic.items()
        },
    )


def decoder_of(
    encoding: Encoding,
    columns: Format,
    schemas: Schemas | None,
    is_key: bool = False,
    ignore_case: bool = False,
    rules: EnvelopeRules | None = None,
) -> Decoder:
    """The decoder of these columns from records that are encoded so; `rules` are those of the value's envelope."""
    registered = (schemas or {}).get(encoding.registry, {}) if encoding.registry else None

    def of_type(kind: pa.DataType) -> Decoder:
        any_case = ignore_case and encoding.format == "json" and registered is None
        return decoder_for(encoding.format, kind, encoding.schema_bytes, encoding.message or "", registered, any_case)

    if is_key:
        return MongoKey(columns.struct, of_type) if columns.envelope else of_type(columns.struct)
    return Enveloped(columns.struct, rules, of_type) if rules else of_type(columns.struct)


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

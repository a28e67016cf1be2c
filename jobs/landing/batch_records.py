"""The records of a batch in Spark: exactly its offset ranges, decoded in Arrow batches to landed rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from jobs.batch import Batch
from jobs.changes.columns import MOVE, UNCHANGED, landing_schema, names_unchanged_columns
from jobs.decode.envelope import OF_MOVES
from jobs.decode.registered import Ids
from jobs.iceberg.new_files import NewFiles
from jobs.landing.failing_records import Coordinates, error_class, failing_records
from jobs.landing.framing import wanted_headers
from jobs.landing.new_tables import NameRule
from jobs.landing.places import Places
from jobs.landing.readers import record_reader
from jobs.landing.reads import Reads, WantedRead, kafka_records, read_alone, require_topics
from jobs.landing.records import RecordReader
from jobs.landing.registry_schemas import Registries, Schemas
from jobs.landing.task import LandingTask, Selection
from jobs.landing.task_report import TaskReport
from jobs.landing.transform import transformed
from jobs.offsets import OffsetRange, TopicPartition, total
from jobs.spark.spark_tasks import in_arrow, task_reports
from jobs.spec.metadata import reads_headers
from jobs.spec.pipeline import PipelineSpec
from resources.kafka import KafkaCluster
from resources.kafka_records import INSTANT, WantedHeaders


@dataclass(frozen=True)
class BatchRecords:
    """The records of one batch, decoded and transformed.

    Attributes:
        table: the intermediate table's columns, which may be more than the pipeline file declares.
        registries: the Schema Registries with the records' schemas.
        schema_ids: ids of schemas in earlier batches.
        refused: records on which the transform was found to fail, with Spark's error class.
        refused_fields: with `unknown_fields: add`, fields that cannot become columns, and why; None: not known yet.
        names: the rule for new names, if records name tables.
        places: of records that are read again (`jobs.landing.places`); None: the batch's own records.
        revision: the batch that lands the records that are read again.
        reads: reads the records.
        record_size: bytes that earlier records take in landed files, on average; 0: not known.
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
    reads: Reads = read_alone
    record_size: float = 0

    @property
    def readings(self) -> int:
        """Upper bound of the rows: the batch's offsets, or, if records are read again, their places."""
        return self.places.total if self.places else total(self.batch.ranges)

    def names_after(self, report: TaskReport) -> NameRule | None:
        """The rule with which the records have to be read again, because of the names that they brought; None: no."""
        return self.names.after(report.names, self.spec) if self.names else None

    def shaped(self, spark: SparkSession) -> DataFrame:
        """Landed rows of all records (`jobs.changes.columns`)."""
        schema, resolved, records = self._schema, self.spec.source.resolved, self._records(spark)
        reader = self._reader(self.registries.schemas_of(self.spec.source, records))
        records = transformed(records, resolved, reader, self.refused) if resolved else records
        shaped = in_arrow(records, reader, _without(schema, self._constants))
        constants = {n: F.lit(v.as_py()).cast(from_arrow_type(v.type)) for n, v in self._constants.items()}
        return shaped.withColumns(constants).select(schema.names)

    def write(self, spark: SparkSession, selection: Selection, files: NewFiles) -> list[TaskReport]:
        """Has Spark's tasks write the selected records, in one pass over Kafka; returns their reports.

        Raises:
            TopicRecreated: the records may be of another topic than the batch was planned for.
        """

        def once(schemas: Schemas) -> list[TaskReport]:
            reader = self._reader(schemas)
            task = LandingTask(reader, selection, files, self._constants)
            if resolved := self.spec.source.resolved:
                records = transformed(self._records(spark), resolved, reader, self.refused)
                reports = task_reports(records, task)
                require_topics(self.kafka, [self.batch])
                return reports
            return self.reads(spark, WantedRead(self.kafka, self.batch, self._reads_headers, task, self._size))

        topics = {tp.topic for tp, offsets in self.batch.ranges.items() if len(offsets)}
        return self.registries.read(self.spec.source, topics, self.schema_ids, once)

    @property
    def _schema(self) -> pa.Schema:
        """The schema of landed rows in this table."""
        schema = landing_schema(self.spec)
        for name in ("value", "kafka"):
            schema = schema.set(schema.get_field_index(name), self.table.field(name))
        # Columns of a pipeline that used `unavailable: keep` earlier.
        more = (f for f in (UNCHANGED, MOVE) if f.name in self.table.names and f.name not in schema.names)
        return pa.schema([*schema, *more])

    @property
    def _constants(self) -> dict[str, pa.Scalar]:
        planned_at = datetime.fromtimestamp(self.batch.planned_at / 1000, UTC)
        same = {
            "landedAt": pa.scalar(planned_at, INSTANT),
            "revision": pa.scalar(self.revision, pa.int64()),
        }
        return same if self.places else {"batchNumber": pa.scalar(self.batch.number, pa.int64()), **same}

    @property
    def _reads_headers(self) -> WantedHeaders:
        # The two records of a primary-key change name each other's key in a header.
        of_moves = frozenset(OF_MOVES if names_unchanged_columns(self.spec) else ())
        return reads_headers(self.spec) or of_moves | wanted_headers(self.spec.source)

    def _records(self, spark: SparkSession) -> DataFrame:
        return kafka_records(spark, self.kafka, self.batch.ranges, self._reads_headers, self._size)

    @property
    def _size(self) -> float:
        """About how many bytes the records take in landed files."""
        return self.record_size * total(self.batch.ranges)

    def _reader(self, schemas: Schemas) -> RecordReader:
        reader = record_reader(self.spec, self.batch, self.table, schemas, self.refused_fields, self.names)
        return replace(reader, positions=self.places) if self.places else reader

    def find_failing(self, spark: SparkSession, problem: PySparkException) -> None:
        """Finds the records on which the transform fails; raises the problem if it has another cause."""
        if self.spec.source.resolved is None or error_class(problem) is None or self.refused:
            raise problem

        def probe(ranges: Mapping[TopicPartition, OffsetRange]) -> None:
            part = replace(self, batch=replace(self.batch, ranges=ranges), refused={})
            # Only whether every record can be evaluated matters here.
            part.shaped(spark).agg(F.count("value")).collect()

        self.refused.update(failing_records(self.batch.ranges, probe))

    def bad(self, spark: SparkSession) -> DataFrame:
        """The bad records, read again from Kafka."""
        return self.shaped(spark).where(F.col("error").isNotNull())


def _without(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    return pa.schema([f for f in schema if f.name not in names])

"""Decodes dead letters again: which are good now, and which errors the others have now.

One dead letter never stops the others. An error in a worker concerns one dead letter, as in landing. Those on which
Spark fails in the transform are found by bisection, however many there are: a retry may be slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from string import ascii_lowercase, ascii_uppercase

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.batch import Batch, CommittedState
from jobs.changes.columns import ERROR, MOVE, SOME_HEADERS, UNCHANGED, names_unchanged_columns
from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.earlier_values import EARLIER
from jobs.dead_letters.moved_rows import read_moved
from jobs.dead_letters.transform_failures import transform_failures
from jobs.decode.base import DecodeError
from jobs.decode.envelope import MOVED
from jobs.iceberg.spark_writes import with_all_columns, with_nested_fields
from jobs.landing.failing_records import STAGE, Coordinates
from jobs.landing.framing import wanted_headers
from jobs.landing.new_tables import NameRule
from jobs.landing.readers import record_reader
from jobs.landing.records import RecordReader
from jobs.landing.task_report import TaskReport
from jobs.landing.transform import transformed
from jobs.offsets import OffsetRange, TopicPartition
from jobs.pipeline import Pipeline
from jobs.replay.revising_batch import revising_batch
from jobs.spark.own_views import cached, own_views
from jobs.spark.spark_tasks import in_arrow
from jobs.spec.columns import key_fields
from jobs.spec.metadata import reads_headers
from resources.kafka_records import INSTANT
from sql import quote

_NAMED = 10
_WAS = ("stage", "kind", "message")
_CARRIED: Mapping[str, pa.DataType] = {
    "batch": pa.int64(),
    "i": pa.int64(),
    **dict.fromkeys(_WAS, pa.string()),
}
# A record that is filtered now was counted as a dead letter when its batch was landed, so it remains one.
_FILTERED = DecodeError("left_out", "the pipeline file leaves this record out now", STAGE)
_NO_HEADERS = "it was landed without its headers, which the pipeline reads: replay its offset from Kafka"


@dataclass(frozen=True)
class Redecoded:
    """The results of decoding dead letters again.

    Attributes:
        rows: one for each dead letter, as it would be landed now; valid while the context is open.
        tried: the number of dead letters.
        recovered: the number by batch that are good now.
        changed: the number by batch that are good now or have another error.
        stay: the first dead letters that are still bad, with their new errors.
        brought: the names of tables that records bring, each with its rank, and their columns.
        waiting: the number by batch of primary-key changes whose omitted values are still unknown.
        lacks_deletes, all_asked: about these, from `jobs.dead_letters.moved_rows`.
        gives_values: a row that is good now has the old key of one of these: what it says may be what that one lacks.
    """

    rows: DataFrame
    tried: int
    recovered: Counter[int]
    changed: Counter[int]
    stay: list[DeadLetter]
    brought: TaskReport = field(default_factory=TaskReport)
    waiting: Counter[int] = field(default_factory=Counter)
    lacks_deletes: bool = False
    all_asked: bool = True
    gives_values: bool = False

    def after(self, next_: Redecoded) -> Redecoded:
        """These results together with those of the next round, for primary-key changes that were still bad."""
        stay = [*(letter for letter in self.stay if letter.kind != MOVED), *next_.stay]
        return replace(
            self,
            recovered=self.recovered + next_.recovered,
            stay=stay,
            waiting=next_.waiting,
            lacks_deletes=next_.lacks_deletes,
            all_asked=next_.all_asked,
        )


@contextmanager
def redecode(
    pipeline: Pipeline,
    spark: SparkSession,
    dead_letters: DataFrame,
    committed: CommittedState,
    schema: pa.Schema,
    names: NameRule | None,
) -> Iterator[Redecoded]:
    """Decodes dead letters with the pipeline file as it is now.

    Args:
        dead_letters: rows of `sql/spark/dead_letters.sql.j2` with values and headers.
        schema: of the intermediate table.
        names: the rule for new names, if records name tables.
    """
    counts = dead_letters.groupBy("topic", "partition").count().collect()
    if not counts:
        yield Redecoded(dead_letters, 0, Counter(), Counter(), [])
        return
    dead_letters, lacking = _with_headers(pipeline, dead_letters)
    # Lengths of ranges do not matter here, since dead letters have their batch and `i`.
    ranges = {TopicPartition(row["topic"], row["partition"]): OffsetRange(0, 0) for row in counts}
    batch, brought = replace(revising_batch(pipeline, committed, 0), ranges=ranges), TaskReport()

    def shown(view: str, names: NameRule | None) -> DataFrame:
        return cached(_shaped(pipeline, dead_letters, batch, schema, names), view)

    with own_views(spark, "redecoded", "redecoded_again") as (view, again):
        rows = shown(view, names)
        if names:
            brought = _brought(rows, names)
            if settled := names.after(brought.names, pipeline.spec):
                rows = shown(again, settled)
                brought = _brought(rows, names)
        outcome = _outcome(pipeline, rows, sum(row["count"] for row in counts), lacking)
        yield replace(outcome, brought=brought)


def _with_headers(pipeline: Pipeline, dead_letters: DataFrame) -> tuple[DataFrame, list[DeadLetter]]:
    """The dead letters that can be decoded, with headers if the pipeline reads them; and the first of those that were
    landed without headers, or with only some."""
    if not reads_headers(pipeline.spec):
        if names_unchanged_columns(pipeline.spec) or wanted_headers(pipeline.spec.source):
            return dead_letters.withColumnRenamed("headers", "some_headers"), []
        return dead_letters.drop("headers"), []
    whole = F.coalesce(~F.exists("headers", lambda h: h["key"] == SOME_HEADERS), F.lit(False))
    lacking = _dead_letters(pipeline, dead_letters.where(~whole), F.lit(_NO_HEADERS))
    dead_letters = dead_letters.where(whole)
    # As Kafka's reader returns them: null if a record has no headers.
    return dead_letters.withColumn("headers", F.when(F.size("headers") > 0, F.col("headers"))), lacking


def _outcome(pipeline: Pipeline, rows: DataFrame, tried: int, lacking: list[DeadLetter]) -> Redecoded:
    by_batch = rows.groupBy("batchNumber").agg(
        F.count_if(F.col("error").isNull()).alias("recovered"),
        F.count_if("changed").alias("changed"),
        F.count_if(F.col("error.kind") == MOVED).alias("waiting"),
    )
    found = by_batch.collect()
    recovered, changed, waiting = (
        Counter({row["batchNumber"]: row[what] for row in found if row[what]})
        for what in ("recovered", "changed", "waiting")
    )
    bad = rows.where(F.col("error").isNotNull()).select(
        "kafka.*", F.col("batchNumber").alias("batch"), "i", "error.stage", "error.kind", "error.message"
    )
    stay = [*lacking, *_dead_letters(pipeline, bad, F.col("message"))][:_NAMED]
    return Redecoded(rows, tried, recovered, changed, stay, waiting=waiting)


def relanded(
    redecoded: DataFrame, dead_letters: DataFrame, batch: Batch, key: Sequence[pa.Field], columns: pa.Schema
) -> DataFrame:
    """The dead letters that are good now or have another error, as rows that this batch lands.

    Args:
        redecoded: `Redecoded.rows`.
        dead_letters: those that were decoded; bad ones keep their headers.
        key: its columns in the pipeline file; the table has those of earlier keys, too.
        columns: of the intermediate table.
    """
    headers = dead_letters.select(F.col("batch").alias("batchNumber"), "i", F.col("headers").alias("__headers"))
    rows = redecoded.where("changed").join(headers, ["batchNumber", "i"], "left")
    own = {
        "landedAt": F.lit(datetime.fromtimestamp(batch.planned_at / 1000, UTC)),
        "revision": F.lit(batch.number).cast("bigint"),
        "error": F.when(F.col("error").isNotNull(), F.col("error").withField("headers", F.col("__headers"))),
    }
    rows = with_nested_fields(rows.withColumns(own), {"key": pa.struct(key)} if key else {}, columns)
    return with_all_columns(rows, [n for n in columns.names if n in (*own, *rows.columns)], columns)


@dataclass(frozen=True)
class Redecoder:
    """Decodes Arrow batches of dead letters to rows, good or bad.

    Attributes:
        moved: reads primary-key changes whose omitted values were found (`EARLIER`); None: there are none.
    """

    reader: RecordReader
    names: tuple[str, ...]
    moved: RecordReader | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            others = batch
            if self.moved:
                known = pc.is_valid(batch.column(EARLIER))
                moved = batch.filter(known)
                yield self._rows(moved, read_moved(_marking_filtered(self.moved), moved))
                others = batch.filter(pc.invert(known))
            yield self.read(others)

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._rows(batch, _marking_filtered(self.reader).read(batch))

    def _rows(self, batch: pa.RecordBatch, shaped: pa.RecordBatch) -> pa.RecordBatch:
        error = shaped.column("error")
        known = {
            "batchNumber": batch.column("batch"),
            "i": batch.column("i"),
            "changed": pc.or_(pc.is_null(error), _differs(batch, error)),
        }
        return pa.RecordBatch.from_pydict(
            {name: known[name] if name in known else shaped.column(name) for name in self.names}
        )


def _marking_filtered(reader: RecordReader) -> RecordReader:
    return replace(reader, filtered_error=_FILTERED)


def _brought(rows: DataFrame, names: NameRule) -> TaskReport:
    """What good records bring: new names, in the order of the records, and the columns of all named tables."""
    name = F.translate(F.col(quote("spark", names.path)).cast("string"), ascii_uppercase, ascii_lowercase)
    good = rows.where(F.col("error").isNull() & name.isNotNull())
    fields = good.select("value.*").columns if names.reports_columns else []
    present = [F.bool_or(F.col(quote("spark", ("value", c))).isNotNull()).alias(str(n)) for n, c in enumerate(fields)]
    first = good.groupBy(name.alias("name")).agg(F.min(F.struct("batchNumber", "i")).alias("first"), *present)
    found = first.orderBy("first").collect()
    return TaskReport(
        names={row["name"]: rank for rank, row in enumerate(found) if row["name"] not in names.known},
        columns={row["name"]: frozenset(c for n, c in enumerate(fields) if row[str(n)]) for row in found if fields},
    )


def _shaped(
    pipeline: Pipeline, dead_letters: DataFrame, batch: Batch, schema: pa.Schema, names: NameRule | None
) -> DataFrame:
    schemas = pipeline.intermediate.registries.schemas_of(pipeline.spec.source, dead_letters)
    reader, moved = record_reader(pipeline.spec, batch, schema, schemas, {}, names), None
    if EARLIER in dead_letters.columns:
        moved = record_reader(pipeline.spec, batch, schema, schemas, {}, names, moved=True)
    key = pa.struct(key_fields(pipeline.spec)) if pipeline.spec.changes.key else None
    columns = _columns(key, schema)
    read, resolved = Redecoder(reader, tuple(columns.names), moved), pipeline.spec.source.resolved
    if resolved is None:
        return in_arrow(dead_letters, read, columns)

    def evaluated(part: DataFrame, refused: Mapping[Coordinates, str]) -> DataFrame:
        return in_arrow(transformed(part, resolved, reader, refused, _CARRIED), read, columns)

    return evaluated(dead_letters, transform_failures(dead_letters, lambda part: evaluated(part, {})))


def _columns(key: pa.DataType | None, table: pa.Schema) -> pa.Schema:
    """The columns of the view."""
    kinds = {
        "batchNumber": pa.int64(),
        "i": pa.int64(),
        "key": key,
        "value": table.field("value").type,
        "op": pa.string(),
        **{f.name: f.type for f in (UNCHANGED, MOVE) if f.name in table.names},
        "kafka": table.field("kafka").type,
        "error": ERROR,
        "partitionTime": INSTANT,
        "changed": pa.bool_(),
    }
    return pa.schema([(name, kind) for name, kind in kinds.items() if kind])


def _differs(batch: pa.RecordBatch, error: pa.Array) -> pa.Array:
    """Whether a dead letter has another error than before."""
    same = [pc.equal(batch.column(name), pc.struct_field(error, name)) for name in _WAS]
    return pc.invert(pc.fill_null(pc.and_(pc.and_(same[0], same[1]), same[2]), False))


def _dead_letters(pipeline: Pipeline, rows: DataFrame, message: Column) -> list[DeadLetter]:
    """The first of these dead letters."""
    columns = ("topic", "partition", "offset", "timestamp", "batch", "i", "stage", "kind")
    named = rows.orderBy("batch", "i").select(*columns, message.alias("message")).limit(_NAMED)
    return [DeadLetter(table=pipeline.intermediate.identifier, **row.asDict()) for row in named.collect()]

"""Dead letters read once more, each on its own: what is good now, and what is wrong with the others now.

One letter never stops the others. What a worker finds wrong is that letter's error, as at landing; a letter on which
Spark fails in the transform is found by halving, however many there are, since a retry has all the time it needs.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.batch import Batch, CommittedState
from jobs.changes.columns import CHANGES, ERROR, KAFKA, KEPT, key_fields
from jobs.dead_letters.letter import Letter
from jobs.iceberg import snapshot_summary
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.history import MENDED
from jobs.landing.records import RecordReader
from jobs.landing.schema_ids import Registries
from jobs.landing.transforming import STAGE, Coordinates, error_class, failing, transformed
from jobs.landing.writing import record_reader
from jobs.offsets import OffsetRange, TopicPartition
from jobs.pipeline import Pipeline
from sql import quote, render

_LOG = logging.getLogger("batchmerge")
VIEW = "batchmerge_tried"
_NAMED = 10
_WAS = ("stage", "kind", "message")
_CARRIED: Mapping[str, pa.DataType] = {
    "batch": pa.int64(),
    "i": pa.int64(),
    **dict.fromkeys(_WAS, pa.string()),
}
_LEFT_OUT = "the pipeline file leaves this record out now"
_NO_HEADERS = "it was landed without its headers, which the transform reads: replay its offset from Kafka"


@dataclass(frozen=True)
class Tried:
    """What became of the letters. The view `VIEW` has a row for each: as it would be landed now.

    Attributes:
        tried: how many there were.
        mended: how many of each batch are good now.
        changed: the first and last batch with a letter that is not as it was; None: all are.
        stay: the first of those that are bad still, with what is wrong with them now.
    """

    tried: int
    mended: Counter[int]
    changed: tuple[int, int] | None
    stay: list[Letter]


@contextmanager
def redecode(
    pipeline: Pipeline, spark: SparkSession, letters: DataFrame, committed: CommittedState, schema: pa.Schema
) -> Iterator[Tried]:
    """Reads letters with the pipeline file as it is; the view lives as long as the context.

    Args:
        letters: rows of `sql/spark/dead_letters.sql.j2` with values and headers.
        schema: of the table that they are in.
    """
    spark.catalog.dropTempView(VIEW)
    counts = letters.groupBy("topic", "partition").count().collect()
    if not counts:
        yield Tried(0, Counter(), None, [])
        return
    letters, lacking = _with_headers(pipeline, letters)
    partitions = [TopicPartition(row["topic"], row["partition"]) for row in counts]
    shaped = _shaped(pipeline, letters, _as_batch(committed, partitions), schema)
    shaped.createOrReplaceTempView(VIEW)
    spark.catalog.cacheTable(VIEW)
    try:
        yield _outcome(pipeline, spark.table(VIEW), sum(row["count"] for row in counts), lacking)
    finally:
        spark.sql(f"UNCACHE TABLE IF EXISTS {quote('spark', VIEW)}")


def _with_headers(pipeline: Pipeline, letters: DataFrame) -> tuple[DataFrame, list[Letter]]:
    """The letters with headers where the transform reads them; and the first of those that were landed without."""
    resolved = pipeline.spec.source.resolved
    if not resolved or not resolved.mentions("_headers"):
        return letters.drop("headers"), []
    lacking = _letters(pipeline, letters.where(F.col("headers").isNull()), F.lit(_NO_HEADERS))
    letters = letters.where(F.col("headers").isNotNull())
    # As Kafka's reader gives them: null where a record has none.
    return letters.withColumn("headers", F.when(F.size("headers") > 0, F.col("headers"))), lacking


def _outcome(pipeline: Pipeline, rows: DataFrame, tried: int, lacking: list[Letter]) -> Tried:
    by_batch = rows.groupBy("batchNumber").agg(
        F.count_if(F.col("error").isNull()).alias("mended"), F.count_if("changed").alias("changed")
    )
    found = {row["batchNumber"]: row for row in by_batch.collect()}
    mended = Counter({number: row["mended"] for number, row in found.items() if row["mended"]})
    changed = [number for number, row in found.items() if row["changed"]]
    bad = rows.where(F.col("error").isNotNull()).select(
        "kafka.*", F.col("batchNumber").alias("batch"), "i", "error.stage", "error.kind", "error.message"
    )
    stay = [*lacking, *_letters(pipeline, bad, F.col("message"))][:_NAMED]
    return Tried(tried, mended, (min(changed), max(changed)) if changed else None, stay)


def mended_summary(
    pipeline: Pipeline, attempt: Attempt, committed: CommittedState, by_batch: Mapping[int, int]
) -> dict[str, str]:
    """Of a snapshot with mended letters: the state stays as it was committed."""
    return {
        **attempt.summary,
        **committed.to_properties(),
        **pipeline.run_properties,
        MENDED: json.dumps({str(number): count for number, count in sorted(by_batch.items())}),
    }


def write_back(
    spark: SparkSession,
    pipeline: Pipeline,
    attempt: Attempt,
    summary: dict[str, str],
    batches: tuple[int, int],
    elsewhere: bool = False,
) -> None:
    """Takes down in the letters' table what became of them, as one snapshot of the attempt's branch. Their bytes stay.

    Args:
        elsewhere: the rows of good records are in another table, so mended letters go from this one.
    """
    keyed = pipeline.spec.changes.key is not None
    first, last = batches
    text = render(
        "spark",
        "mend",
        target=attempt.path,
        tried=[VIEW],
        keyed=keyed,
        keeps=KEPT.name in attempt.schema.names,
        first=first,
        last=last,
        elsewhere=elsewhere,
    )
    with snapshot_summary.carried(spark, summary):
        spark.sql(text)


@dataclass(frozen=True)
class Redecoder:
    """Turns Arrow batches of dead letters into the rows that they are now, good or bad."""

    reader: RecordReader
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self.read(batch)

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        shaped = self.reader.read(batch)
        left_out = pc.fill_null(pc.equal(shaped.column("op"), RecordReader.FILTERED), False)
        error = _left_out(batch, shaped.column("error"), left_out)
        good = pc.is_null(error)
        known = {
            "batchNumber": batch.column("batch"),
            "i": batch.column("i"),
            "op": pc.if_else(pc.is_in(shaped.column("op"), pa.array(CHANGES)), shaped.column("op"), None),
            "kafka": shaped.column("kafka"),
            "error": error,
            "changed": pc.or_(good, _differs(batch, error)),
        }
        for name in set(self.names).intersection(("key", "value", KEPT.name)):
            values = shaped.column(name)
            known[name] = pc.if_else(good, values, pa.nulls(len(values), values.type))
        return pa.RecordBatch.from_pydict({name: known[name] for name in self.names})


def _shaped(pipeline: Pipeline, letters: DataFrame, batch: Batch, schema: pa.Schema) -> DataFrame:
    schemas = Registries(pipeline.registries()).schemas_of(pipeline.spec.source, letters)
    value_type, keeps = schema.field("value").type, KEPT.name in schema.names
    reader = record_reader(pipeline.spec, batch, value_type, schemas, keeps)
    columns = _columns(pa.struct(key_fields(pipeline.spec)) if pipeline.spec.changes.key else None, value_type, keeps)
    kind = from_arrow_schema(columns, prefer_timestamp_ntz=True)
    again, resolved = Redecoder(reader, tuple(columns.names)), pipeline.spec.source.resolved

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return again(batches)

    if resolved is None:
        return letters.mapInArrow(read, kind)

    def evaluated(part: DataFrame, refused: Mapping[Coordinates, str]) -> DataFrame:
        return transformed(part, resolved, reader, refused, _CARRIED).mapInArrow(read, kind)

    return evaluated(letters, _failing(letters, lambda part: evaluated(part, {})))


def _failing(letters: DataFrame, evaluated: Callable[[DataFrame], DataFrame]) -> dict[Coordinates, str]:
    """The letters that Spark fails on in the transform, with its error class."""

    def evaluate(part: DataFrame) -> None:
        evaluated(part).agg(F.count(F.hash("value"))).collect()

    try:
        evaluate(letters)
        return {}
    except PySparkException as problem:
        if error_class(problem) is None:
            raise
    columns = ("batch", "i", "topic", "partition", "offset")
    places = sorted(tuple(row) for row in letters.select(*columns).collect())
    position = F.struct("batch", "i")

    def probe(part: list[tuple[int, int, str, int, int]]) -> None:
        low, high = (
            F.struct(F.lit(end[0]).cast("bigint"), F.lit(end[1]).cast("bigint")) for end in (part[0], part[-1])
        )
        evaluate(letters.where(position.between(low, high)))

    found = {(place[2], place[3], place[4]): reason for (place,), reason in failing(places, _halves, probe)}
    _LOG.info("the transform fails on %d of %d dead letters", len(found), len(places))
    return found


def _halves(part: list[tuple[int, int, str, int, int]]) -> list[list[tuple[int, int, str, int, int]]]:
    middle = len(part) // 2
    return [part[:middle], part[middle:]] if middle else []


def _as_batch(committed: CommittedState, partitions: list[TopicPartition]) -> Batch:
    """What a reader of records asks for; letters have their place, batch and `i`, already."""
    return Batch(
        pipeline=committed.pipeline,
        number=committed.batch_number,
        commit_id=committed.commit_id,
        previous_commit_id=None,
        ranges=dict.fromkeys(partitions, OffsetRange(0, 0)),
        topic_ids=committed.topic_ids,
        planned_at=0,
        spec_hash=committed.spec_hash,
    )


def _columns(key: pa.DataType | None, value: pa.DataType, keeps: bool) -> pa.Schema:
    """Of the view."""
    kinds = {
        "batchNumber": pa.int64(),
        "i": pa.int64(),
        "key": key,
        "value": value,
        "op": pa.string(),
        KEPT.name: KEPT.type if keeps else None,
        "kafka": KAFKA,
        "error": ERROR,
        "changed": pa.bool_(),
    }
    return pa.schema([(name, kind) for name, kind in kinds.items() if kind])


def _left_out(batch: pa.RecordBatch, errors: pa.Array, left_out: pa.Array) -> pa.Array:
    """A letter that would not be landed now stays one: it was counted as one when its batch was landed."""
    if not pc.any(left_out).as_py():
        return errors
    headers = batch.column("headers") if "headers" in batch.schema.names else pa.nulls(batch.num_rows)
    raw = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), headers.to_pylist(), strict=True)
    said = {"stage": STAGE, "kind": "left_out", "message": _LEFT_OUT}
    rows = [
        {**said, "key": key, "value": value, "headers": headers} if out else error
        for error, out, (key, value, headers) in zip(errors.to_pylist(), left_out.to_pylist(), raw, strict=True)
    ]
    return pa.array(rows, ERROR)


def _differs(batch: pa.RecordBatch, error: pa.Array) -> pa.Array:
    """Whether something else is wrong with a letter than before."""
    same = [pc.equal(batch.column(name), pc.struct_field(error, name)) for name in _WAS]
    return pc.invert(pc.fill_null(pc.and_(pc.and_(same[0], same[1]), same[2]), False))


def _letters(pipeline: Pipeline, rows: DataFrame, message: Column) -> list[Letter]:
    """The first of these letters."""
    columns = ("topic", "partition", "offset", "timestamp", "batch", "i", "stage", "kind")
    named = rows.orderBy("batch", "i").select(*columns, message.alias("message")).limit(_NAMED)
    return [Letter(place=pipeline.intermediate.identifier, **row.asDict()) for row in named.collect()]

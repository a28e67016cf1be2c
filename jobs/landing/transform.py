"""A pipeline's transform: Spark SQL between decoding and landing.

Three steps, each with one row per record: workers decode (`DecodeStep`), Spark evaluates the expressions, workers
shape the result (`RecordReader`). A bad or filtered record keeps its row, so that every record is counted.

Spark SQL has no error per row: an expression that fails fails the whole job. Conversions, which fail most, are tried
before they are evaluated, so that any number of records may be at fault. After another failure the records at fault
are found (`jobs.landing.failing_records`) and no longer evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from jobs.decode.base import DecodeError
from jobs.decode.verdicts import COLUMNS, Verdicts
from jobs.landing.failing_records import STAGE, Coordinates
from jobs.landing.records import Operations, RecordReader
from jobs.landing.topic_decoder import TopicDecoder
from jobs.schema.types import parse_columns
from jobs.spark.spark_tasks import in_arrow
from jobs.spec.source import Source
from jobs.spec.transform import KEY, METADATA, RECORDS, REFUSED, Conversion, Resolved
from resources.kafka_records import HEADERS, header_column, records_schema

RAW = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class DecodeStep:
    """Records (`RAW`) with the result of decoding: columns of the value, `_key`, and errors.

    Attributes:
        refused: records on which the transform has failed, with Spark's error class.
        headers: the records' column of headers, if they have one.
        carried: further columns that each record keeps.
    """

    key_decoder: TopicDecoder | None
    value_decoder: TopicDecoder
    refused: Mapping[Coordinates, str] = field(default_factory=dict)
    headers: str | None = None
    carried: Mapping[str, pa.DataType] = field(default_factory=dict)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self.read(batch)

    @property
    def schema(self) -> pa.Schema:
        key = [(KEY, self.key_decoder.type)] if self.key_decoder else []
        value = [("row", self.value_decoder.type)]
        headers = [(self.headers, HEADERS)] if self.headers else []
        return pa.schema([*records_schema(False), *headers, *self.carried.items(), *key, *value, *COLUMNS])

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        verdicts = Verdicts(batch.num_rows)
        columns = {name: batch.column(name).cast(self.schema.field(name).type) for name in (*RAW, *self.carried)}
        if self.headers:
            columns[self.headers] = batch.column(self.headers).cast(HEADERS)
        for name, stage, decoder in (("row", "value", self.value_decoder), (KEY, "key", self.key_decoder)):
            if decoder is None:
                continue
            decoded = decoder.decode(batch, stage)
            columns[name] = decoded.values
            verdicts.add(decoded, stage)
        self._refuse(batch, verdicts)
        columns.update(verdicts.columns())
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)

    def _refuse(self, batch: pa.RecordBatch, verdicts: Verdicts) -> None:
        if not self.refused:
            return
        coordinates = zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
        for row, place in enumerate(coordinates):
            if error := self.refused.get(place):
                text = f"the transform fails on this record: Spark's {error}"
                verdicts.refuse(row, DecodeError("transform", text, STAGE))


def transformed(
    records: DataFrame,
    resolved: Resolved,
    reader: RecordReader,
    refused: Mapping[Coordinates, str] | None,
    carried: Mapping[str, pa.DataType] | None = None,
) -> DataFrame:
    """Kafka records decoded and evaluated, for the reader to shape."""
    headers, carried = header_column(records.columns), carried or {}
    step = DecodeStep(reader.key_decoder, reader.value_decoder, refused or {}, headers, carried)
    decoded = in_arrow(records, step, step.schema)
    operations = reader.operations if reader.shows_deletes else None
    return evaluated(decoded, resolved, step.key_decoder is not None, tuple(carried), operations)


def evaluated(
    decoded: DataFrame,
    resolved: Resolved,
    has_key: bool,
    carried: tuple[str, ...] = (),
    operations: Operations | None = None,
) -> DataFrame:
    """The records with `result`, a struct of the transform's columns; null for tombstones, bad and filtered ones.

    Args:
        operations: which records are deletes that a table shows; None: none is.
    """
    own = [F.col("row.*"), *([F.col(KEY)] if has_key else [])]
    places = [F.col(n.removeprefix("_")).alias(n) for n in METADATA if n.removeprefix("_") in decoded.columns]
    headers = header_column(decoded.columns)
    carried_columns = (*RAW, *carried, *([headers] if headers else []))
    raw = [F.col(name).alias(f"__raw_{name}") for name in carried_columns]
    usable = F.col("row").isNotNull() & F.col("problem").isNull() & ~F.col("filtered")
    state = [*(F.col(name).alias(f"__{name}") for name in COLUMNS.names), usable.alias("__usable")]
    records = decoded.select(*own, *places, *raw, *state).alias(RECORDS)
    kinds = {f.name: from_arrow_type(f.type, prefer_timestamp_ntz=True) for f in parse_columns(resolved.columns)}
    made = F.struct(*(F.expr(resolved.expressions[n]).cast(kind).alias(n) for n, kind in kinds.items()))
    checked = records.withColumn("__passes", F.when(F.col("__usable"), _passes(resolved, operations))).alias(RECORDS)
    good: Column = F.col("__usable") & F.col("__passes")
    judged = checked.withColumn("__refused", F.when(good, _refusal(resolved))).alias(RECORDS)
    return judged.select(
        *(F.col(f"__raw_{name}").alias(name) for name in carried_columns),
        *([F.col(KEY)] if has_key else []),
        F.when(good & F.col("__refused").isNull(), made).alias("result"),
        F.coalesce("__refused", "__problem").alias("problem"),
        (F.col("__filtered") | F.coalesce(~F.col("__passes"), F.lit(False))).alias("filtered"),
        F.col("__unknown").alias("unknown"),
    )


def _passes(resolved: Resolved, operations: Operations | None) -> Column:
    """Whether `where` keeps a record: also a delete or a truncation that brings too little for the condition."""
    if resolved.condition is None:
        return F.lit(True)
    unjudged = []
    if operations and operations.field in resolved.expressions:
        said = F.expr(resolved.expressions[operations.field]).cast("string")
        unjudged = [said.isin(*operations.removing)]
    return F.coalesce(F.expr(resolved.condition), *unjudged, F.lit(False))


def _refusal(resolved: Resolved) -> Column:
    """Why the statement refuses a record, as a `PROBLEM`: by its own rule, or as a conversion fails."""

    def problem(refuses: Column, kind: str, message: Column) -> Column:
        parts = {"stage": F.lit(STAGE), "kind": F.lit(kind), "message": message}
        return F.when(refuses, F.struct(*(part.alias(name) for name, part in parts.items())))

    own = F.expr(resolved.expressions.get(REFUSED, "null")).cast("string")
    return F.coalesce(
        problem(own.isNotNull(), "refused", own),
        *(
            problem(_fails(one), "transform", F.lit(f"the transform fails on this record: no value for column {name}"))
            for name, one in resolved.conversions.items()
        ),
    )


def _fails(conversion: Conversion) -> Column:
    given = made = F.expr(conversion.given)
    for cast in conversion.casts:
        kind = from_arrow_type(cast.kind, prefer_timestamp_ntz=True)
        made = F.try_to_timestamp(made, F.expr(cast.form)) if cast.form else made.try_cast(kind)
    return given.isNotNull() & made.isNull()


def analyse(spark: SparkSession, source: Source) -> None:
    """Has Spark resolve the transform against the declared columns, without reading anything.

    Raises:
        PySparkException: Spark does not accept the transform.
    """
    resolved = source.resolved
    if resolved is None:
        return
    key = [(KEY, source.key.struct)] if source.key else []
    raw = [(name, pa.binary() if name in ("key", "value") else METADATA[f"_{name}"]) for name in RAW]
    more = [("headers", HEADERS), *key, ("row", source.value.struct), *COLUMNS]
    nothing = spark.createDataFrame([], from_arrow_schema(pa.schema([*raw, *more]), prefer_timestamp_ntz=True))
    evaluated(nothing, resolved, bool(key)).schema  # noqa: B018

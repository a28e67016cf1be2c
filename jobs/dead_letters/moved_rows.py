"""Rows with another primary key, whose change leaves values out: what these are is known from the old key.

Debezium sends such a change as the delete of the old key, a tombstone and the insert of the new one, whose header names
the old key. The values stand under that one, whose delete may be in another topic-partition and another batch, and
already be merged. So the insert lands as a dead letter of the kind ``moved``, whatever the log was cut into. It is read
again as soon as the delete is landed too, with the values that the landed changes of the old key say, or its row in a
table that has not got the delete yet. That is a retry of dead letters (`jobs.dead_letters.retry`): it lands the insert
at its own place.

Sources: Debezium's documentation of the PostgreSQL connector ("Primary key updates", "Toasted values"); how Connect's
`SimpleHeaderConverter` and `JsonConverter` write a struct.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.batch import LandedBatches
from jobs.changes.columns import MOVE, UNCHANGED
from jobs.changes.routing import route_filter
from jobs.dead_letters.earlier_values import EARLIER, PLACE, EarlierValues
from jobs.decode.envelope import MOVED, OLD_KEY
from jobs.destinations.base import Destination
from jobs.destinations.registry import kind_of
from jobs.landing.records import RecordReader
from jobs.pipeline import Pipeline
from jobs.schema.renaming import Renaming
from jobs.spark.own_views import cached, own_views
from jobs.spec.columns import key_fields
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.unchanged_columns import can_leave_unchanged, unchanged_columns
from resources.errors import BatchmergeError, Interrupted
from resources.spark_errors import spark_errors
from sql import render

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class WithEarlier:
    """Dead letters with what is known about those of rows that were moved.

    Attributes:
        dead_letters: with their earlier values (`EARLIER`), if there is one of which all are known.
        lacks_deletes: the delete of the old key of one of them is not landed yet.
        all_asked: False: a table that may know the values could not be read, or comes to know more.
        old_keys: ``batch, i, old_key`` of those whose old key can be read; None: there are none.
    """

    dead_letters: DataFrame
    lacks_deletes: bool = False
    all_asked: bool = True
    old_keys: DataFrame | None = None

    def are_given_values(self, rows: DataFrame) -> bool:
        """Whether a dead letter that is good now has the old key of one of them that still waits.

        Args:
            rows: of `jobs.dead_letters.redecode`.
        """
        if self.old_keys is None:
            return False
        waiting = rows.where(F.col("error.kind") == MOVED).select(F.col("batchNumber").alias("batch"), "i")
        good = rows.where(F.col("error").isNull()).select(F.col("key").alias("old_key"))
        return not self.old_keys.join(waiting, list(PLACE)).join(good, "old_key", "left_semi").isEmpty()


@contextmanager
def with_earlier_values(
    pipeline: Pipeline, spark: SparkSession, dead_letters: DataFrame, schema: pa.Schema
) -> Iterator[WithEarlier]:
    """The dead letters with their earlier values, as far as these are known.

    Args:
        spark: reaches the tables, too.
        dead_letters: rows of `sql/spark/dead_letters.sql.j2` with headers.
        schema: of the table that they are in.
    """
    columns = _columns(pipeline.spec, schema)
    moved = dead_letters.where(F.col("kind") == MOVED)
    if not len(columns) or moved.isEmpty():
        yield WithEarlier(dead_letters)
        return
    moved = moved.withColumn("old_key", _old_key(pipeline.spec)).where(F.col("old_key").isNotNull())
    with own_views(spark, "moved_rows", "old_deletes") as (rows, deletes), ExitStack() as views:
        moved.select(*PLACE, "topic", "partition", "offset", "old_key", "move").createTempView(rows)
        landed = {"table": pipeline.intermediate.path}
        found = cached(spark.sql(render("spark", "deletes_of_moved_rows", moved=[rows], **landed)), deletes)
        old_keys = spark.table(rows).select(*PLACE, "old_key")
        counted = found.agg(F.count("*").alias("deletes")).crossJoin(old_keys.agg(F.count("*").alias("moved")))
        (counts,) = counted.collect()
        lacks_deletes = counts["deletes"] < counts["moved"]
        if not counts["deletes"]:
            yield WithEarlier(dead_letters, lacks_deletes, old_keys=old_keys)
            return
        names = [f.name for f in key_fields(pipeline.spec)]
        search = EarlierValues(spark, views, landed, names, columns, deletes)
        search.find()
        all_asked = _ask_tables(pipeline, search)
        if search.found:
            found = reduce(DataFrame.unionAll, map(spark.table, search.found))
            dead_letters = dead_letters.join(found, list(PLACE), "left")
        yield WithEarlier(dead_letters, lacks_deletes, all_asked, old_keys)


def _ask_tables(pipeline: Pipeline, search: EarlierValues) -> bool:
    """Searches the tables, one after the other, until all values are found.

    Returns:
        Whether all tables could be asked. One that cannot yet holds up no landing.
    """
    landed, all_asked = pipeline.intermediate.landed(), True
    for destination in filter(partial(_finds_all, pipeline.spec), pipeline.destinations()):
        try:
            if not (ends := search.ends()):
                return True
            if (state := destination.committed()) is not None:
                all_asked &= state.batch_number >= last_reading_before(ends[-1], landed)
                with spark_errors(destination.name):
                    _ask(destination, search, ends, landed)
        except Interrupted:
            raise
        except BatchmergeError as problem:
            _LOG.warning("%s is not asked for values of rows with a new key: %s", destination.name, problem)
            all_asked = False
    return all_asked or not search.ends()


def _ask(destination: Destination, search: EarlierValues, ends: Sequence[int], landed: LandedBatches) -> None:
    """Reads the table as it was before one of the batches in which the old keys are deleted: merges go on meanwhile.

    The oldest state that knows enough comes first. A later one says more only of keys that were read again since.
    """
    least: int | None = least_batch(landed)
    while ends and least is not None:
        reader = destination.read(lambda: search.spark)
        found = reader.rows_of(search.spark, search.keys(ends), search.columns, ends, least)
        if found is None:
            return
        rows, held_at = found
        search.find(rows, held_at)
        least = next((b.number for b in landed.batches if b.batch.revises is not None and b.number > held_at), None)
        ends = search.ends(held_at) if least is not None else ()


def least_batch(landed: LandedBatches) -> int:
    """The batch that a table's rows must have, so that they and the landed changes leave nothing out: retention has
    removed what was before the first one, and of what was read again since it may have removed both readings."""
    first = landed.batches[0].number
    again = [b.number for b in landed.batches if b.batch.revises is not None and b.batch.revises < first]
    return max(first - 1, *([] if landed.complete else again), 0)


def last_reading_before(end: int, landed: LandedBatches) -> int:
    """The last batch before this one that revises others. A table that lacks it comes to a state that says more; 0:
    there is none."""
    return max((b.number for b in landed.batches if b.batch.revises is not None and b.number < end), default=0)


def _finds_all(spec: PipelineSpec, destination: Destination) -> bool:
    """Whether the table can say what stands under any key: not one that takes only some rows."""
    table = destination.table
    return kind_of(table).capabilities.finds_rows and can_leave_unchanged(table) and route_filter(spec, table) is None


def _columns(spec: PipelineSpec, schema: pa.Schema) -> pa.Schema:
    """Columns that a change may leave out, as far as they were landed; none where none may."""
    landed = {f.name: f for f in schema.field("value").type}
    return pa.schema([landed[c] for c in unchanged_columns(spec) if c in landed] if MOVE.name in schema.names else [])


def _old_key(spec: PipelineSpec) -> Column:
    """The old key, out of the header; null where it cannot be read (of Avro, for one)."""
    key, source = spec.changes.key, spec.source
    assert key is not None, "rows that keep columns have a key"
    origin = source.key if key.source == "kafka_key" and source.key else source.value
    fields, renaming = key_fields(spec), Renaming(origin.rename)
    kinds = from_arrow_schema(pa.schema([f.with_name(renaming.field((f.name,))[0]) for f in fields]))
    found = F.try_element_at(F.filter("headers", lambda h: h["key"] == OLD_KEY), F.lit(-1))["value"].cast("string")
    # With `schemas.enable` the key is the payload.
    parsed = F.from_json(F.coalesce(F.get_json_object(found, "$.payload"), found), kinds)
    parts = [parsed[kind.name].alias(f.name) for kind, f in zip(kinds, fields, strict=True)]
    whole = reduce(and_, (parsed[kind.name].isNotNull() for kind in kinds))
    return F.when(whole, F.struct(*parts))


def read_moved(reader: RecordReader, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Dead letters whose earlier values are known (`EARLIER`) as landed rows, in the same order: what they leave out is
    filled in.

    Args:
        reader: leaves unchanged what inserts leave out.
    """
    rows = reader.read(batch)
    value, left_out, earlier = rows.column("value"), rows.column(UNCHANGED.name), batch.column(EARLIER)
    parts = []
    for field in value.type:
        part = pc.struct_field(value, [field.name])
        if earlier.type.get_field_index(field.name) >= 0:
            keeps = pa.array([field.name in (names or ()) for names in left_out.to_pylist()], pa.bool_())
            part = pc.if_else(keeps, pc.struct_field(earlier, [field.name]).cast(field.type), part)
        parts.append(part)
    filled = pa.StructArray.from_arrays(parts, fields=list(value.type), mask=pc.is_null(value))
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns |= {"value": filled, UNCHANGED.name: pa.nulls(len(rows), UNCHANGED.type)}
    return pa.RecordBatch.from_pydict(columns)

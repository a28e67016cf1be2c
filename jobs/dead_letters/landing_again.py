"""Lands dead letters again if their decoding has another result now: a row, or another error.

They land as a batch that revises earlier ones (`jobs.replay.revise`), each at its original batch and `i`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.batch import Batch, Counts
from jobs.changes.columns import names_unchanged_columns
from jobs.commit_loop import retry_on_conflict
from jobs.dead_letters.listing import open_dead_letters
from jobs.dead_letters.moved_rows import with_earlier_values
from jobs.dead_letters.redecode import Redecoded, redecode, relanded
from jobs.decode.envelope import MOVED
from jobs.iceberg import spark_writes
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.schema import arrow_schema
from jobs.landing.new_tables import known_names, name_rule
from jobs.landing.ranges import LandedRanges
from jobs.landing.task import Selection
from jobs.pipeline import Pipeline
from jobs.replay.revising_batch import most_attempts, revising_batch
from jobs.spark.own_views import cached, own_views
from jobs.spec.columns import key_fields
from resources.spark_errors import spark_errors


def land_again(pipeline: Pipeline, batches: tuple[int, int] | None = None, kind: str | None = None) -> Redecoded | None:
    """Decodes the open dead letters again and lands those with another result.

    A row with a changed key may wait for values of a row that this lands, which another row waits for in turn: so it
    repeats while what it lands has the old key of one that waits.

    Args:
        batches: only dead letters of these batches (first, last). kind: only those with this kind of error.

    Returns:
        The results; None if nothing is landed yet.
    """
    attempts, where = most_attempts(pipeline), pipeline.intermediate.identifier
    found = done = retry_on_conflict(lambda: _land(pipeline, batches, kind), attempts, where)
    while found and done and done.recovered and found.stay and names_unchanged_columns(pipeline.spec):
        # Other dead letters may have been the deletes of old keys, or have hidden what a row said.
        if kind == MOVED and not done.gives_values:
            break
        kind = MOVED
        done = retry_on_conflict(lambda: _land(pipeline, batches, MOVED), attempts, where)
        if done:
            found = found.after(done)
    return found


def session(pipeline: Pipeline) -> SparkSession:
    """A Spark session for the landed rows, and for tables in which the values of old keys are searched."""
    return pipeline.spark("dead-letters retry", pipeline.intermediate.catalog, *pipeline.destinations())


def _land(pipeline: Pipeline, only: tuple[int, int] | None, kind: str | None) -> Redecoded | None:
    """One round; None if nothing is landed yet."""
    place = pipeline.intermediate
    committed = place.committed()
    pipeline.check_meaning(committed)
    known_batches = place.landed().batches
    if committed is None or not known_batches:
        return None
    with spark_errors(place.identifier):
        spark = session(pipeline)
        # Not those of batches that retention has removed: later changes of their keys may be gone.
        first, last = only or (0, committed.batch_number)
        dead_letters = open_dead_letters(pipeline, spark, max(first, known_batches[0].number), last)
        if kind:
            dead_letters = dead_letters.where(F.col("kind") == kind)
        table = place.catalog.require(place.identifier)
        names = name_rule(pipeline.spec, known_names(table.properties, pipeline.name))
        schema = arrow_schema(table)
        with (
            own_views(spark, "dead_letters") as (view,),
            with_earlier_values(pipeline, spark, cached(dead_letters, view), schema) as known,
            redecode(pipeline, spark, known.dead_letters, committed, schema, names) as redecoded,
        ):
            if redecoded.changed:
                batch = revising_batch(pipeline, committed, min(redecoded.changed))
                write = partial(_write, spark.table(view), batch, redecoded, key_fields(pipeline.spec))
                place.revise(batch, committed, known_batches, Attempt, write, pipeline.run_properties)
            may_go_on = redecoded.recovered and redecoded.waiting
            gives_values = bool(may_go_on) and known.are_given_values(redecoded.rows)
    return replace(redecoded, lacks_deletes=known.lacks_deletes, all_asked=known.all_asked, gives_values=gives_values)


def _write(
    dead_letters: DataFrame,
    batch: Batch,
    redecoded: Redecoded,
    key: Sequence[pa.Field],
    commit: Attempt,
    selection: Selection,
) -> LandedRanges:
    """Has Spark write the dead letters with another result to the branch of the commit."""
    rows = relanded(redecoded.rows, dead_letters, batch, key, commit.schema)
    wanted = F.coalesce(F.col("op").isin(*selection.operations), F.lit(False))
    if selection.bad_records:
        wanted |= F.col("error").isNotNull()
    spark_writes.append(rows.where(wanted), commit.path, commit.summary)
    changed, recovered = redecoded.changed.total(), redecoded.recovered.total()
    counts = Counts(changed, recovered, changed - recovered, recovered=changed)
    return LandedRanges(counts, redecoded.brought)

"""Retries dead letters with the pipeline file as it is now (`batchmerge dead-letters retry`).

All open dead letters are decoded again (`jobs.dead_letters.redecode`). Those that can be read now, and those that have
another error, land as a batch of their own, which revises earlier ones (`jobs.replay.revise`): each at its own batch
and `i`. Then every table merges what is landed. Whatever dies in between is finished by the next run; a second retry
finds nothing more to do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.batch import Batch, CommittedState, Counts
from jobs.commit_loop import retry_on_conflict
from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.listing import open_dead_letters
from jobs.dead_letters.redecode import Redecoded, redecode, relanded
from jobs.iceberg import spark_writes
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.schema import arrow_schema
from jobs.landing.new_tables import known_names, name_rule
from jobs.landing.ranges import LandedRanges
from jobs.landing.task import Selection
from jobs.pipeline import Pipeline
from jobs.replay.landed import check_coordinates
from jobs.replay.revise import Applied, merge_tables, most_attempts, revising_batch
from resources.spark import spark_errors

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class Retried:
    """What a retry did.

    Attributes:
        tried: open dead letters of batches that are known.
        recovered: those that are rows now.
        stay: the first of the others, each with its error of now.
        applied: what the tables got.
        gone: open dead letters of batches that retention has removed, which cannot be tried any more.
        first_gone: where the first of those is in Kafka, as ``topic-partition=offset``.
    """

    tried: int = 0
    recovered: int = 0
    stay: list[DeadLetter] = field(default_factory=list)
    applied: Applied = field(default_factory=Applied)
    gone: int = 0
    first_gone: str = ""


def retry(pipeline: Pipeline) -> Retried:
    """Decodes the dead letters again, lands those that can be read now, and brings them into every table.

    One that still cannot be read, or that the transform fails on, stays a dead letter with its new error.

    Raises:
        ConfigurationError: a table's rows cannot be distinguished; nothing is landed then.
    """
    for destination in pipeline.destinations():
        check_coordinates(pipeline, destination)
    pipeline.intermediate.prepare()
    done = retry_on_conflict(lambda: _land(pipeline), most_attempts(pipeline), pipeline.intermediate.identifier)
    applied = merge_tables(pipeline)
    gone, first_gone = _gone(pipeline)
    if done is None:
        return Retried(applied=applied, gone=gone, first_gone=first_gone)
    recovered = sum(done.recovered.values())
    _LOG.info("recovered %d of %d dead letters", recovered, done.tried)
    return Retried(done.tried, recovered, done.stay, applied, gone, first_gone)


def _land(pipeline: Pipeline) -> Redecoded | None:
    """One attempt; None where nothing is landed yet."""
    place = pipeline.intermediate
    committed = place.committed()
    pipeline.check_generation(committed)
    if committed is None:
        return None
    with spark_errors(place.identifier):
        spark = pipeline.spark("dead-letters", place.catalog)
        dead_letters = _dead_letters(pipeline, spark, committed)
        if dead_letters is None:
            return None
        table = place.catalog.require(place.identifier)
        names = name_rule(pipeline.spec, known_names(table.properties, pipeline.name))
        with redecode(pipeline, spark, dead_letters, committed, arrow_schema(table), names) as redecoded:
            if redecoded.changed:
                batch = revising_batch(pipeline, committed, min(redecoded.changed))
                readings = _DeadLetterReadings(spark, dead_letters, batch, redecoded)
                place.revise(batch, committed, readings, pipeline.run_properties)
    return redecoded


def _dead_letters(pipeline: Pipeline, spark: SparkSession, committed: CommittedState) -> DataFrame | None:
    """The open dead letters that can be tried."""
    # Of batches that retention has removed it is not known any more what came after them.
    known = pipeline.intermediate.landed().batches
    return open_dead_letters(pipeline, spark, known[0].number, committed.batch_number) if known else None


def _gone(pipeline: Pipeline) -> tuple[int, str]:
    """Of open dead letters that cannot be tried: how many there are, and where the first is."""
    known = pipeline.intermediate.landed()
    if known.complete or not known.batches:
        return 0, ""
    with spark_errors(pipeline.intermediate.identifier):
        dead_letters = open_dead_letters(
            pipeline, pipeline.spark("dead-letters", pipeline.intermediate.catalog), 0, known.batches[0].number - 1
        )
        if dead_letters is None:
            return 0, ""
        place = F.concat_ws("", "topic", F.lit("-"), "partition", F.lit("="), "offset")
        found = dead_letters.agg(
            F.count("*").alias("gone"), F.min_by(place, F.struct("batch", "i")).alias("first")
        ).first()
    assert found is not None, "an aggregate has one row"
    return found["gone"], found["first"] or ""


@dataclass(frozen=True)
class _DeadLetterReadings:
    """Dead letters that have something new to say (`jobs.landing.readings.Readings`)."""

    spark: SparkSession
    dead_letters: DataFrame
    batch: Batch
    redecoded: Redecoded
    from_dead_letters: bool = True

    def write(self, commit: Append | Attempt, selection: Selection) -> LandedRanges:
        assert isinstance(commit, Attempt), "letters are read by Spark, which writes to a branch"
        rows = relanded(self.spark, self.dead_letters, self.batch, commit.schema)
        wanted = F.coalesce(F.col("op").isin(*selection.operations), F.lit(False))
        if selection.bad_records:
            wanted |= F.col("error").isNotNull()
        spark_writes.append(rows.where(wanted), commit.path, commit.summary)
        changed, recovered = (sum(found.values()) for found in (self.redecoded.changed, self.redecoded.recovered))
        counts = Counts(changed, recovered, changed - recovered, recovered=changed)
        return LandedRanges(counts, self.redecoded.brought)

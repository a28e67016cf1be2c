"""Retries dead letters with the pipeline file as it is now (`batchmerge dead-letters retry`).

All open dead letters are decoded again (`jobs.dead_letters.redecode`). Those that can be read now, and those that have
another error, land as a batch of their own, which revises earlier ones (`jobs.replay.revise`): each at its own batch
and `i`. Then every table merges what is landed. Whatever dies in between is finished by the next run; a second retry
finds nothing more to do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pyspark.sql import functions as F

from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.landing_again import land_again, session
from jobs.dead_letters.listing import open_dead_letters
from jobs.pipeline import Pipeline
from jobs.replay.landed import check_coordinates
from jobs.replay.revise import Applied, merge_tables
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
    done = land_again(pipeline)
    applied = merge_tables(pipeline)
    gone, first_gone = _gone(pipeline)
    if done is None:
        return Retried(applied=applied, gone=gone, first_gone=first_gone)
    recovered = sum(done.recovered.values())
    _LOG.info("recovered %d of %d dead letters", recovered, done.tried)
    return Retried(done.tried, recovered, done.stay, applied, gone, first_gone)


def _gone(pipeline: Pipeline) -> tuple[int, str]:
    """Of open dead letters that cannot be tried: how many there are, and where the first is."""
    known = pipeline.intermediate.landed()
    if known.complete or not known.batches:
        return 0, ""
    with spark_errors(pipeline.intermediate.identifier):
        dead_letters = open_dead_letters(pipeline, session(pipeline), 0, known.batches[0].number - 1)
        if dead_letters is None:
            return 0, ""
        place = F.concat_ws("", "topic", F.lit("-"), "partition", F.lit("="), "offset")
        found = dead_letters.agg(
            F.count("*").alias("gone"), F.min_by(place, F.struct("batch", "i")).alias("first")
        ).first()
    assert found is not None, "an aggregate has one row"
    return found["gone"], found["first"] or ""

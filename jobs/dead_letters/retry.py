"""Retries dead letters with the present pipeline file (`batchmerge dead-letters retry`).

All open dead letters are decoded again (`jobs.dead_letters.redecode`). Those that can be read now, or have another
error, land as a batch that revises earlier ones (`jobs.replay.revise`), each at its original batch and `i`. Then every
table merges it. If the retry dies in between, the next run finishes it; a second retry finds nothing more to do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pyspark.sql import functions as F

from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.landing_again import land_again, session
from jobs.dead_letters.listing import open_dead_letters
from jobs.pipeline import Pipeline
from jobs.replay.coordinates import check_rereading
from jobs.replay.revise import Applied, merge_tables
from resources.spark_errors import spark_errors

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class Retried:
    """The result of a retry.

    Attributes:
        tried: the number of open dead letters of known batches.
        recovered: the number that are rows now.
        stay: the first of the others, each with its new error.
        applied: what the tables merged.
        gone: the number of open dead letters of batches that retention has removed; they cannot be retried.
        first_gone: the first one's position in Kafka, as ``topic-partition=offset``.
    """

    tried: int = 0
    recovered: int = 0
    stay: list[DeadLetter] = field(default_factory=list)
    applied: Applied = field(default_factory=Applied)
    gone: int = 0
    first_gone: str = ""


def retry(pipeline: Pipeline) -> Retried:
    """Decodes the dead letters again, lands those that can be read now, and merges them into every table.

    A record that still cannot be read, or on which the transform fails, remains a dead letter with its new error.

    Raises:
        ConfigurationError: a table's rows cannot be distinguished; nothing was landed.
    """
    for destination in pipeline.destinations():
        check_rereading(pipeline, destination, from_kafka=False)
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
    """The number of open dead letters that cannot be retried, and the first one's position."""
    known = pipeline.intermediate.landed()
    if known.complete or not known.batches:
        return 0, ""
    with spark_errors(pipeline.intermediate.identifier):
        dead_letters = open_dead_letters(pipeline, session(pipeline), 0, known.batches[0].number - 1)
        place = F.concat_ws("", "topic", F.lit("-"), "partition", F.lit("="), "offset")
        first = F.min_by(place, F.struct("batch", "i")).alias("first")
        (found,) = dead_letters.agg(F.count("*").alias("gone"), first).collect()
    return found["gone"], found["first"] or ""

"""Retries dead letters with the pipeline file as it is now (`batchmerge dead-letters retry`).

1. Decode the dead letters again (`jobs.dead_letters.redecode`). One that can be read now becomes the row that it would
   have been: its row in the intermediate table, at its own batch and `i`, loses its error and gets key, value and
   operation. All of them change in one conditional commit, which is refused if anything else was committed meanwhile.
2. Replay their batches into every table (`jobs.replay.landed`). Keyed tables get the newest landed change of each key
   that those batches touched, so a change that is newer than the recovered one stays. Other tables get the rows whose
   coordinates they lack.

A retry that dies between the two is finished by the next merge or retry (`jobs.dead_letters.recovered`); replaying
twice changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from jobs.commit_loop import retry_on_conflict
from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.direct import recover_direct
from jobs.dead_letters.listing import ALL, dead_letter_table
from jobs.dead_letters.recovered import forget_replayed, replay_recovered, to_replay
from jobs.dead_letters.redecode import Redecoded, recovered_summary, redecode, write_back
from jobs.failpoints import failpoint
from jobs.iceberg.attempt import Attempt
from jobs.landing.direct import DirectLanding
from jobs.pipeline import Pipeline
from jobs.protocol import merge
from jobs.replay.landed import Replayed, check_coordinates
from resources.spark import spark_errors
from sql import render

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class Retried:
    """What a retry did.

    Attributes:
        tried: dead letters of batches that every table has.
        recovered: those that are rows now.
        stay: the first of the others, each with its error of now.
        replayed: per table what the replay did.
    """

    tried: int
    recovered: int
    stay: list[DeadLetter]
    replayed: dict[str, Replayed]


def retry(pipeline: Pipeline) -> Retried:
    """Decodes the dead letters again, lands those that can be read now, and brings them into every table.

    Dead letters of batches that a table has not merged yet wait for the next retry. One that still cannot be read, or
    that the transform fails on, stays a dead letter with its new error.

    Raises:
        ConfigurationError: a table's rows cannot be told apart.
        BatchmergeError: a table cannot be brought up to date first; nothing is recovered then.
    """
    for destination in pipeline.destinations():
        check_coordinates(destination)
    place = pipeline.intermediate
    place.prepare()
    if isinstance(place, DirectLanding):
        return _retried(_recover(pipeline, lambda: recover_direct(pipeline, place)), {})
    replayed = _replay_recovered(pipeline)
    for destination in pipeline.destinations():
        # A merge that read the landed rows before step 1 must not commit after step 2.
        merge(pipeline, destination)
    redecoded = _recover(pipeline, lambda: _recover_once(pipeline))
    return _retried(redecoded, {**replayed, **_replay_recovered(pipeline)})


def _retried(redecoded: Redecoded | None, replayed: dict[str, Replayed]) -> Retried:
    if redecoded is None:
        return Retried(0, 0, [], replayed)
    recovered = sum(redecoded.recovered.values())
    _LOG.info("recovered %d of %d dead letters", recovered, redecoded.tried)
    return Retried(redecoded.tried, recovered, redecoded.stay, replayed)


def _recover(pipeline: Pipeline, once: Callable[[], Redecoded | None]) -> Redecoded | None:
    attempts = max(table.max_commit_attempts for table in pipeline.spec.tables)
    return retry_on_conflict(once, attempts, dead_letter_table(pipeline))


def _recover_once(pipeline: Pipeline) -> Redecoded | None:
    """One attempt at step 1; None where no batch is in every table yet."""
    table = pipeline.intermediate
    committed = table.committed()
    pipeline.check_generation(committed)
    merged = [state.batch_number if (state := d.committed()) else 0 for d in pipeline.destinations()]
    # Batches that retention has removed cannot be replayed, nor those that were landed with another `changes`.
    landed = [b for b in table.landed().batches if b.batch.spec_hash == pipeline.spec.meaning_hash]
    if committed is None or not landed or not min(merged):
        return None
    with spark_errors(table.identifier):
        attempt = Attempt(table.catalog, table.identifier, pipeline.name, committed)
        spark = pipeline.spark("dead-letters", table.catalog)
        text = render("spark", "dead_letters", table=attempt.path, values=True, headers=True)
        letters = spark.sql(text, args={"first": landed[0].number, "last": min(merged), "most": ALL})
        with redecode(pipeline, spark, letters, committed, attempt.schema) as redecoded:
            if redecoded.changed is None:
                attempt.discard()
                return redecoded
            summary = recovered_summary(pipeline, attempt, committed, redecoded.recovered)
            write_back(spark, pipeline, attempt, summary, redecoded.changed)
    failpoint("retry.written")
    attempt.publish_head({}, to_replay(pipeline, redecoded.recovered))
    failpoint("retry.published")
    return redecoded


def _replay_recovered(pipeline: Pipeline) -> dict[str, Replayed]:
    """Step 2, also of a retry that died before it."""
    replayed = {d.name: done for d in pipeline.destinations() if (done := replay_recovered(pipeline, d))}
    forget_replayed(pipeline)
    return replayed

"""Lands the dead letters of rows that got another key again, as soon as their batch is landed."""

from __future__ import annotations

import logging
from dataclasses import replace

from jobs.batch import LandedBatch
from jobs.changes.columns import names_unchanged_columns
from jobs.decode.envelope import MOVED
from jobs.pipeline import Pipeline

_LOG = logging.getLogger("batchmerge")


def land_moved_rows(pipeline: Pipeline, landed: LandedBatch) -> LandedBatch:
    """Of this batch, the newest one.

    A row that was moved twice is known after its first move is: so it goes on until nothing more is found.

    Returns:
        The batch as it counts from then on.
    """
    wanted = names_unchanged_columns(pipeline.spec) and landed.batch.revises is None
    if not wanted or not landed.counts.quarantined:
        return landed
    from jobs.dead_letters.landing_again import land_again

    found, more = 0, True
    while more:
        done = land_again(pipeline, landed.number, MOVED)
        found += done.recovered.total() if done else 0
        more = bool(done and done.recovered and done.stay)
    if found:
        _LOG.info("landed %d rows of batch %d with the values of their old keys", found, landed.number)
    return replace(landed, counts=landed.counts.with_recovered(found))


def land_moved_rows_of_dead_run(pipeline: Pipeline) -> None:
    """Of the newest batch, where the run that landed it died before."""
    if names_unchanged_columns(pipeline.spec) and (batches := pipeline.intermediate.landed().batches):
        land_moved_rows(pipeline, batches[-1])

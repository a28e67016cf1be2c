"""Lands the dead letters of rows that got another key again, as soon as what the old key says is landed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from jobs.batch import LandedBatch
from jobs.changes.columns import names_unchanged_columns
from jobs.decode.envelope import MOVED
from jobs.pipeline import Pipeline

_LOG = logging.getLogger("batchmerge")


def land_moved_rows(pipeline: Pipeline, landed: LandedBatch) -> LandedBatch:
    """Of this batch, the newest one, and of earlier ones where it brings the deletes that theirs wait for.

    Returns:
        The batch as it counts from then on.
    """
    if not names_unchanged_columns(pipeline.spec) or (first := _first_waiting(pipeline, landed)) is None:
        return landed
    from jobs.dead_letters.landing_again import land_again

    done = land_again(pipeline, (first, landed.number), MOVED)
    if done is None or not done.recovered:
        return landed
    _LOG.info("batch %d: landed %d rows with the values of their old keys", landed.number, done.recovered.total())
    return replace(landed, counts=landed.counts.with_recovered(done.recovered[landed.number]))


def land_moved_rows_of_dead_run(pipeline: Pipeline) -> None:
    """Of the newest batch of Kafka's records, where the run that landed it died before."""
    if names_unchanged_columns(pipeline.spec) and (landed := _first_hands(pipeline)):
        land_moved_rows(pipeline, landed[-1])


def _first_waiting(pipeline: Pipeline, landed: LandedBatch) -> int | None:
    """The first batch with such dead letters that this one may bring an answer for."""
    if landed.moves.left:
        return next((batch.number for batch in _first_hands(pipeline) if batch.moves.waiting), None)
    return landed.number if landed.moves.waiting else None


def _first_hands(pipeline: Pipeline) -> Sequence[LandedBatch]:
    """The landed batches of Kafka's records that were read for the first time."""
    return [batch for batch in pipeline.intermediate.landed().batches if batch.batch.revises is None]

"""Lands the dead letters of rows that got another key again, as soon as their batch is landed."""

from __future__ import annotations

import logging

from jobs.batch import LandedBatch
from jobs.changes.columns import names_unchanged_columns
from jobs.decode.envelope import MOVED
from jobs.pipeline import Pipeline

_LOG = logging.getLogger("batchmerge")


def land_moved_rows(pipeline: Pipeline, landed: LandedBatch | None = None) -> None:
    """Of the batch that was just landed; without one, of the newest, whose run may have died before this was done.

    A row that was moved twice is known after its first move is: so it goes on until nothing more is found.
    """
    if not names_unchanged_columns(pipeline.spec):
        return
    known = [landed] if landed else pipeline.intermediate.landed().batches[-1:]
    if not known or not known[0].counts.quarantined or known[0].batch.revises is not None:
        return
    from jobs.dead_letters.landing_again import land_again

    number, found = known[0].number, 0
    while (done := land_again(pipeline, number, MOVED)) and done.recovered:
        found += done.recovered.total()
    if found:
        _LOG.info("landed %d rows of batch %d with the values that stood under their old keys", found, number)

"""`commit: together`: all tables of a batch in one transaction of their catalog, so that no reader sees them apart.

As in `jobs.protocol.merge`, table by table: planned from its own committed state and written to an attempt's branch.
Only the last step is one for all: every table's compare-and-set is a requirement of the same commit. Tables that have
a batch already skip it, as ever; a table that fails holds back the others, which is what was asked for.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from jobs.batch_error_context import batch_error_context
from jobs.destinations.base import Destination, Transaction
from jobs.failpoints import failpoint
from jobs.pipeline import Pipeline
from jobs.protocol import MergedBatches, pending, tell
from resources.errors import CommitFailed, CommitStateUnknown, TerminalError

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class MergedTable:
    """What one table got in the common commit; `merged` None: it had everything already."""

    destination: Destination
    merged: MergedBatches | None


def merge_together(pipeline: Pipeline) -> list[MergedTable]:
    """Applies to every table what is landed and not yet in it, in one commit.

    Starts over when another writer was faster, a bounded number of times.

    Raises:
        ConfigurationError: the catalog cannot commit several tables at once.
    """
    destinations = pipeline.destinations()
    failed: Exception | None = None
    attempts = max(d.table.max_commit_attempts for d in destinations)
    for attempt in range(1, attempts + 1):
        transaction = destinations[0].transaction()
        try:
            done = [_write(pipeline, destination, transaction) for destination in destinations]
            failpoint("together.written")
            transaction.commit()
            failpoint("together.published")
        except (CommitFailed, CommitStateUnknown) as lost:
            _LOG.warning("all tables of %s, attempt %d: %s", pipeline.name, attempt, lost)
            failed = lost
            continue
        landed = pipeline.intermediate.landed()[0]
        for table in done:
            tell(pipeline, table.destination, landed, table.merged)
        return done
    raise TerminalError(
        f"other writers have changed one of the tables during each of {attempts} attempts; the last said: {failed}",
        where=f"pipeline {pipeline.name}",
        remedy="let them write less often or to a branch, raise `max_commit_attempts`, or set `commit: each`",
    ) from failed


def _write(pipeline: Pipeline, destination: Destination, transaction: Transaction) -> MergedTable:
    """Writes one table's part, which only the transaction makes visible."""
    wanted = pending(pipeline, destination)
    if not wanted.batches:
        return MergedTable(destination, None)
    failpoint("merge.planned")
    work = replace(pipeline.merge_context(destination), transaction=transaction)
    with batch_error_context([b.batch for b in wanted.batches]):
        merged = destination.merge(work, wanted.committed, wanted.batches)
    if merged is None:
        return MergedTable(destination, None)
    return MergedTable(destination, MergedBatches(wanted.batches, wanted.committed, merged))

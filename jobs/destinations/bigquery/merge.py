"""A merge into BigQuery: loads into a staging table, one merge job, one compare-and-set of the state.

The eight steps of a flush (`docs/internals.md`, BigQuery connector), and what a crash after each leaves behind:

==================================  ====================================================================================
step                                after a crash there
==================================  ====================================================================================
1  batch number                     landing has given it; nothing is in BigQuery yet
2  previous flush complete          the state row says so: it moves only after its merge job is done
3  load job                         files that were written for it mean nothing without it. A load that is done keeps
                                    its job id: the next run gets 409, and adopts the range in its labels; or gives it
                                    up, where its labels say that another pipeline file made its rows. If a load still
                                    runs twice, the merge ignores the second copy of each row (batch number and `i`)
4  rows are there                   load jobs skip the streaming buffer, so nothing is waited for; rows are counted
5  merge job                        submitted or done: 409, the next run waits for it and takes its range from its
                                    labels; failed: BigQuery has done nothing of it, and the next attempt number is used
6  state row moved                  the table has moved on; only clean-up is left, and every clean-up takes all that is
                                    merged
7  offsets of the consumer group    `jobs.events.publishing`, repeatable
8  clean-up                         done again by the next flush
==================================  ====================================================================================

A merge job that starts late is harmless: its id holds the number after the committed batch, an id is accepted once, and
attempt n + 1 exists only where attempt n is over without effect. So per committed state at most one merge ever takes
effect, whoever submitted it; whoever else arrives, moves the state to that job's range or finds it moved.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.bigquery.flush import Flush, RefusedCounts, adopted, is_due, state_after, with_state
from jobs.destinations.bigquery.loading import LoadedOtherwise, Loader
from jobs.destinations.bigquery.maintain import clean_up
from jobs.destinations.bigquery.state import Generation, StateRow
from jobs.destinations.bigquery.tables import new_staging_table
from jobs.destinations.bigquery.work import TableWork
from jobs.destinations.merge_context import MergeContext, Merged
from jobs.destinations.outdated_dead_letters import OutdatedDeadLetters
from jobs.destinations.refusal import check_limits
from jobs.destinations.stages import Stages
from jobs.failpoints import failpoint
from resources.bigquery import Job
from resources.errors import CommitFailed, InvariantBroken, LineageBroken

_LOG = logging.getLogger("batchmerge")


def merge(
    work: TableWork, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]
) -> Merged | None:
    """Merges as the protocol says; None if no trigger of the table asks for a merge yet.

    Raises:
        CommitFailed: another run was faster, or had begun a flush of another range, which is then complete.
    """
    row = work.expect(committed)
    replayed = work.replayed(context, batches) if batches[-1].batch.revises is not None else None
    if not (context.due or replayed or is_due(work.table, batches, int(time.time() * 1000))):
        return None
    clock = Stages()
    failpoint("bigquery.begun")
    wanted = Flush(tuple(batches))
    attempts = work.attempts_on(row)
    job = attempts.closed()
    if job is None:
        loader = work.loader(context, row.staging_table, replayed)
        meaning = wanted.last.batch.meaning_hash
        if row.committed and row.committed.orders_otherwise(meaning, work.spec.order_hash):
            work.forget_deletes(row)
        else:
            work.remember_deletes(context, row)
        outdated = OutdatedDeadLetters.of(context, replayed, work.side_table) if replayed else None
        flush, loaded = clock.time("load", lambda: _load(work, loader, row, wanted))
        counts = RefusedCounts.of(loaded.labels)
        failpoint("bigquery.loaded")
        check_limits(work.spec, work.name, counts.refused, flush.rows, len(flush.batches))
        if outdated:
            outdated.forget(RefusedCounts.attempt_of(loaded.labels))
        job = clock.time("merge", lambda: _apply(work, loader, row, flush, counts))
    try:
        flush = adopted(job.labels, context.intermediate.landed().batches, work.name)
    except LineageBroken:
        # Move the state row to what merges have done, so that a person decides on the true state.
        settle(work)
        raise
    failpoint("bigquery.merged")
    clock.time("state", lambda: work.state.move(row, state_after(job)))
    failpoint("bigquery.moved")
    clock.time("clean-up", lambda: clean_up(work, row, flush))
    failpoint("bigquery.cleaned")
    if flush.batches != wanted.batches:
        raise CommitFailed(
            f"another run had begun to merge up to {flush.last.batch}; that is complete now",
            where=work.name,
            remedy="plan again from there",
        )
    return Merged(work.counts(job, flush.rows, RefusedCounts.of(job.labels)), str(job.job_id), clock.seconds)


def _load(work: TableWork, loader: Loader, row: StateRow, wanted: Flush) -> tuple[Flush, Job]:
    try:
        return loader.fill(wanted, work.loads_after(row))
    except InvariantBroken:
        # Rows may be missing because another run has merged them and cleaned them up: that is no error.
        work.expect(row.committed)
        raise
    except (LineageBroken, LoadedOtherwise) as useless:
        work.expect(row.committed)
        raise _discarded(work, loader, row, useless.what) from useless


def _discarded(work: TableWork, loader: Loader, row: StateRow, why: str) -> CommitFailed:
    """Gives up loads of a flush of which nobody can make use; the next `prepare` makes another staging table.

    Nothing of the flush is in the destination, and without its staging table no merge can bring it there.
    """
    _LOG.warning("%s: %s; what was loaded is thrown away, nothing was merged", work.name, why)
    heir = _heir(work, loader, row) if work.keeps_deletes and row.committed else None
    work.bigquery.delete_table(row.staging_table)
    if heir and work.attempts_on(row).closed() is None:
        work.state.renew(row, row.table_created, heir)
    return CommitFailed(f"the staging table {row.staging_table} was thrown away", where=work.name)


def _heir(work: TableWork, loader: Loader, row: StateRow) -> Generation:
    """A generation whose staging table has the merged deletes of this one: their batches may not be landed any
    more."""
    assert row.committed, "a table without a batch has merged no deletes"
    heir = work.state.new_generation()
    table_id = work.bigquery.table_id(heir.staging_table)
    wanted = new_staging_table(table_id, work.pipeline, work.table.table, loader.schema)
    work.bigquery.create_lasting_table(wanted)
    replace(loader, staging_table=heir.staging_table).copy_deletes(row.staging_table, row.committed.batch_number)
    return heir


def settle(work: TableWork) -> None:
    """Moves the state row to what finished merges have done, if their runs died before they moved it."""
    row = work.state.read()
    while row is not None:
        job = work.attempts_on(row).closed()
        if job is None:
            return
        after = state_after(job)
        _LOG.info(
            "%s: batch %d was merged, and its run has not moved the state",
            work.name,
            after.committed.batch_number,
        )
        work.state.move(row, after)
        row = work.state.read()


def _apply(work: TableWork, loader: Loader, row: StateRow, flush: Flush, counts: RefusedCounts) -> Job:
    text, values = work.bound(loader, row, flush)
    text = with_state(text, work.after(row, flush))
    labels = {**flush.labels("merge", loader.context.run_id), **counts.labels()}
    return work.attempts_on(row).run_until_done(partial(work.submit, text, values, labels))

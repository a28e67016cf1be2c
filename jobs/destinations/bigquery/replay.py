"""A replay of landed batches into BigQuery: loads a staging table of its own, one job in the sequence of merges."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.bigquery.flush import Flush
from jobs.destinations.bigquery.loading import Loader
from jobs.destinations.bigquery.state import StateRow
from jobs.destinations.bigquery.tables import new_staging_table
from jobs.destinations.bigquery.work import TableWork
from jobs.destinations.merge_context import MergeContext, Merged
from jobs.destinations.outdated_dead_letters import OutdatedDeadLetters
from jobs.destinations.stages import Stages
from jobs.failpoints import failpoint
from resources.bigquery import Job
from resources.errors import CommitFailed


def replay(work: TableWork, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
    """Replays as the protocol says. The replay is one attempt in the sequence of merges on top of `committed`.

    So no merge takes effect between what it reads and what it writes; if it comes late, its number is taken.
    """
    row = work.expect(committed)
    clock = Stages()
    newest = next(b for b in context.intermediate.landed().batches if b.number == committed.batch_number)
    flush = Flush((newest,))
    replayed = work.replayed(context, batches, committed.batch_number)
    outdated = OutdatedDeadLetters.of(context, replayed, work.side_table)
    work.remember_deletes(context, row)
    staging = _replay_table(work, row)
    try:
        loader = work.loader(context, staging, replayed)
        rows, counts = clock.time("load", lambda: loader.copy(flush))
        if work.keeps_deletes:
            loader.copy_deletes(row.staging_table, committed.batch_number)
        failpoint("bigquery.replay-loaded")
        job = clock.time("merge", lambda: _replay(work, loader, row, flush))
    finally:
        work.bigquery.delete_table(staging)
    outdated.forget(loader.refusal.attempt)
    return Merged(work.counts(job, rows, counts), str(job.job_id), clock.seconds)


def _replay_table(work: TableWork, row: StateRow) -> str:
    """A staging table for this replay alone, with the same columns. If the run dies, it expires."""
    name = f"{row.staging_table}_replay_{uuid.uuid4().hex[:12]}"
    staged = work.present_staging_table(row.staging_table).schema
    table = new_staging_table(work.bigquery.table_id(name), work.pipeline, work.table.table, staged)
    table.labels = {**table.labels, "batchmerge-replay": "1"}
    table.expires = datetime.now(UTC) + timedelta(days=1)
    work.bigquery.create_table(table)
    return name


def _replay(work: TableWork, loader: Loader, row: StateRow, flush: Flush) -> Job:
    text, values = work.bound(loader, row, flush)
    token = uuid.uuid4().hex
    labels = {**flush.labels("replay", loader.context.run_id), "batchmerge-replay": token}
    job = work.attempts_on(row).step(partial(work.submit, text, values, labels))
    if job.labels.get("batchmerge-replay") != token:
        raise CommitFailed("another run was faster", where=work.name, remedy="plan again from what it committed")
    return job

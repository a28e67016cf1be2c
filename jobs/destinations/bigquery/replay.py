"""A replay of landed batches into BigQuery: loads a staging table of its own, one job in the sequence of merges."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.bigquery.flush import Flush, applies
from jobs.destinations.bigquery.loading import Loader
from jobs.destinations.bigquery.state import StateRow
from jobs.destinations.bigquery.tables import new_staging_table
from jobs.destinations.bigquery.work import Work
from jobs.destinations.merge_context import MergeContext, Merged
from jobs.destinations.outdated_dead_letters import OutdatedDeadLetters
from jobs.destinations.stages import Stages
from jobs.failpoints import failpoint
from resources.bigquery import Job
from resources.errors import CommitFailed


@dataclass(frozen=True)
class Replaying(Work):
    """Replays of one table."""

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        """Replays as the protocol says. The replay is one attempt in the sequence of merges on top of `committed`.

        So no merge takes effect between what it reads and what it writes; if it comes late, its number is taken.
        """
        row = self.expect(committed)
        clock = Stages()
        newest = next(b for b in context.intermediate.landed().batches if b.number == committed.batch_number)
        flush = Flush((newest,))
        replayed = self.replayed(context, batches, committed.batch_number)
        outdated = OutdatedDeadLetters.of(context, replayed, self.side_table)
        self.remember_deletes(context, row)
        staging = self._replay_table(row)
        try:
            loader = self.loader(context, staging, replayed)
            rows, judged = clock.time("load", lambda: loader.copy(flush))
            if self.keeps_deletes:
                loader.copy_deletes(row.staging_table, committed.batch_number)
            failpoint("bigquery.replay-loaded")
            job = clock.time("merge", lambda: self._replay(loader, row, flush))
        finally:
            self.bigquery.delete_table(staging)
        outdated.forget(loader.rows.refusal.attempt)
        return Merged(self.counts(job, rows, judged), str(job.job_id), clock.seconds)

    def _replay_table(self, row: StateRow) -> str:
        """A staging table for this replay alone, with the same columns. If the run dies, it expires."""
        name = f"{row.staging_table}_replay_{uuid.uuid4().hex[:12]}"
        staged = self.present_staging_table(row.staging_table).schema
        table = new_staging_table(self.bigquery.table_id(name), self.pipeline, self.table.table, staged)
        table.labels = {**table.labels, "batchmerge-replay": "1"}
        table.expires = datetime.now(UTC) + timedelta(days=1)
        self.bigquery.create_table(table)
        return name

    def _replay(self, loader: Loader, row: StateRow, flush: Flush) -> Job:
        text, values = self.bound(loader, row, flush)
        token = uuid.uuid4().hex
        labels = {**flush.labels("replay", loader.rows.context.run_id), "batchmerge-replay": token}
        job = self.attempts_on(row).step(partial(self.submit, text, values, labels), applies)
        if job.labels.get("batchmerge-replay") != token:
            raise CommitFailed("another run was faster", where=self.where, remedy="plan again from what it committed")
        return job

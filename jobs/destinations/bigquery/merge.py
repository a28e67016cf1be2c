"""A merge into BigQuery: loads into an intermediate table, one merge job, one compare-and-set of the state.

The seed's eight steps, and what a crash after each leaves behind:

==================================  ====================================================================================
step                                after a crash there
==================================  ====================================================================================
1  batch number                     landing has given it; nothing is in BigQuery yet
2  previous flush complete          the state row says so: it moves only after its merge job is done
3  load jobs, one per chunk         loads that are done keep their job ids: the next run gets 409, adopts the range that
                                    the first of them fixed in its labels, and loads what is missing. A load that ran
                                    twice all the same adds rows that the merge counts once (batch number and `i`)
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
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial

from google.cloud.bigquery import SchemaField, Table

from jobs.batch import CommittedState, LandedBatch, MergeCounts
from jobs.changes.columns import names_unchanged_columns
from jobs.changes.reduction import Reduction
from jobs.changes.unchanged_columns import may_leave_unchanged
from jobs.destinations.base import MergeContext, Merged, require_batch_column
from jobs.destinations.bigquery.columns import Column, intermediate_fields, renamed_columns
from jobs.destinations.bigquery.direct_load import takes_landed_rows
from jobs.destinations.bigquery.flush import Flush, Judged, adopted, applies, is_due, state_after, with_state
from jobs.destinations.bigquery.held import held_columns
from jobs.destinations.bigquery.job_sequence import JobSequence
from jobs.destinations.bigquery.loading import Loader
from jobs.destinations.bigquery.maintain import CleanUp
from jobs.destinations.bigquery.names import load_prefix, merge_prefix
from jobs.destinations.bigquery.query_parameters import Binding, Values, has_kept, says_op
from jobs.destinations.bigquery.rows import ChunkRows
from jobs.destinations.bigquery.side_table import SideTable
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.state import StateRow, TableAt, TableState
from jobs.destinations.bigquery.statement import order_column
from jobs.destinations.bigquery.tables import intermediate_table, lacks_deletes, with_deletes
from jobs.destinations.refusal import Refusal, check_limits
from jobs.destinations.refused_rows import with_refused
from jobs.destinations.stages import Stages
from jobs.failpoints import failpoint
from jobs.lineage import joined, recreated_topics
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.unchanged_columns import can_keep
from resources.bigquery import BigQuery, Job
from resources.errors import CommitFailed, InvariantBroken, LineageBroken, TableReplaced

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class Merging:
    """Merges and replays of one table.

    Attributes:
        where: the destination's name, for errors.
    """

    bigquery: BigQuery
    pipeline: str
    spec: PipelineSpec
    table: BigQueryTable
    columns: Sequence[Column]
    state: TableState
    side_table: SideTable
    where: str

    @property
    def _order(self) -> Column | None:
        return order_column(self.spec, self.columns)

    @property
    def _takes_landed_rows(self) -> bool:
        return takes_landed_rows(self.spec, self.table, self.columns)

    @property
    def staged(self) -> list[SchemaField]:
        """The intermediate table's schema."""
        return intermediate_fields(
            self.columns,
            self._order,
            keeps=can_keep(self.table) and names_unchanged_columns(self.spec),
            says_op=self._takes_landed_rows,
        )

    @cached_property
    def _binding(self) -> Binding:
        return Binding(self.bigquery, self.spec, self.table, self.columns, self.where)

    def merge(
        self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]
    ) -> Merged | None:
        """As in the protocol; None where neither trigger of the flush is due.

        Raises:
            CommitFailed: another run was faster, or had begun a flush of another range, which is then complete.
        """
        row = self._expect(committed)
        again = self._again(context, batches) if batches[-1].batch.revises is not None else None
        if not (context.due or again or is_due(self.table, batches, int(time.time() * 1000))):
            return None
        clock = Stages()
        failpoint("bigquery.begun")
        wanted = Flush(tuple(batches), self.table.rows_a_load)
        attempts = self.attempts_on(row)
        job = attempts.closed(applies)
        if job is None:
            loader = self._loader(context, row.intermediate, again)
            self._remember_deletes(self._loader(context, row.intermediate), row)
            flush, judged = clock.time("load", lambda: self._load(loader, row, wanted))
            failpoint("bigquery.loaded")
            check_limits(self.spec, self.where, judged.refused, flush.rows, len(flush.batches))
            job = clock.time("merge", lambda: self._apply(loader, row, flush, judged))
        try:
            flush = adopted(job.labels, context.intermediate.landed().batches, self.where)
        except LineageBroken:
            # Of whoever decides how to go on, `settle` is asked first.
            self.settle()
            raise
        failpoint("bigquery.merged")
        clock.time("state", lambda: self.state.move(row, TableAt.after(row.at, flush.batches)))
        failpoint("bigquery.moved")
        clock.time("clean-up", lambda: self.clean_up.after(row, flush))
        failpoint("bigquery.cleaned")
        if flush.batches != wanted.batches:
            raise CommitFailed(
                f"another run had begun to merge up to {flush.last.batch}; that is complete now",
                where=self.where,
                remedy="plan again from there",
            )
        return Merged(self._counts(job, flush.rows, Judged.of(job.labels)), str(job.job_id), clock.seconds)

    def _load(self, loader: Loader, row: StateRow, wanted: Flush) -> tuple[Flush, Judged]:
        prefix = partial(load_prefix, self.pipeline, self.table.table, row.generation, row.next_batch)
        try:
            return loader.fill(wanted, prefix)
        except InvariantBroken:
            # Rows that are missing because another run has merged and cleaned them up are no fault.
            self._expect(row.committed)
            raise
        except LineageBroken as gone:
            self._expect(row.committed)
            raise self._discarded(row, gone) from gone

    def _discarded(self, row: StateRow, gone: LineageBroken) -> CommitFailed:
        """Gives up loads of a flush that nobody can finish; `prepare` makes another intermediate table after it.

        Nothing of it is in the destination, and without its table no merge of it can get there any more.
        """
        _LOG.warning("%s: %s; what was loaded of them is thrown away, nothing was merged", self.where, gone.what)
        self.bigquery.delete_table(row.intermediate)
        return CommitFailed(f"the intermediate table {row.intermediate} was thrown away", where=self.where)

    def settle(self) -> None:
        """Moves the state row to what merges have done whose runs died before they moved it."""
        row = self.state.read()
        while row is not None:
            job = self.attempts_on(row).closed(applies)
            after = state_after(job) if job else None
            if after is None:
                return
            _LOG.info("%s: batch %d was merged by a run that died", self.where, after.committed.batch_number)
            self.state.move(row, after)
            row = self.state.read()

    def _remember_deletes(self, loader: Loader, row: StateRow) -> None:
        """Fills an intermediate table that stands for a lost one with the deletes that were merged before.

        Merged rows come along; the next clean-up takes them out.
        """
        if row.committed is None or not lacks_deletes(self._staged(loader.intermediate)):
            return
        known = loader.context.intermediate.landed()
        merged = tuple(b for b in known.batches if b.number <= row.committed.batch_number)
        if not known.complete or not merged:
            _LOG.warning(
                "%s: the intermediate table was lost, and with it which keys were deleted before batch %d, which is "
                "the first that is still landed: a change of such a key that is older than its delete, and still to "
                "come, will bring its row back",
                self.where,
                merged[0].number if merged else row.next_batch,
            )
        if merged:
            # What was refused of them was told when they were merged.
            loader.copy(Flush(merged, self.table.rows_a_load), tells=False)
        self.bigquery.update_table(*with_deletes(self._staged(loader.intermediate)))

    def _loader(self, context: MergeContext, intermediate: str, again: Reduction | None = None) -> Loader:
        schema, order = list(self._staged(intermediate).schema), self._order
        refusal = self._refusal(context.intermediate.landed().batches)
        return Loader(
            bigquery=self.bigquery,
            context=context,
            intermediate=intermediate,
            schema=schema,
            columns=self.columns,
            rows=ChunkRows(
                context=context,
                table=self.table,
                columns=self.columns,
                order_by=order.source if order else None,
                where=self.where,
                keeps=has_kept(schema) and may_leave_unchanged(self.spec, self.table, context.intermediate),
                again=again,
                judged=any(column.may_refuse for column in refusal.columns),
            ),
            table=self.table,
            where=self.where,
            refusal=refusal,
            side_table=self.side_table,
            # Landed deletes may have a value: without `op` nothing would tell them from rows.
            as_landed=again is None and self._takes_landed_rows and says_op(schema),
        )

    def _refusal(self, batches: Sequence[LandedBatch]) -> Refusal:
        return Refusal(
            where=self.where,
            columns=held_columns(self.spec, self.table, self.columns),
            on_bad_record=self.spec.on_bad_record,
            out_of_range=self.table.out_of_range,
            attempt=uuid.uuid4().hex,
            topic_ids={topic: id_ for b in batches for topic, id_ in b.batch.topic_ids.items()},
        )

    def _staged(self, intermediate: str) -> Table:
        found = self.bigquery.find_table(intermediate)
        if found is None:
            raise TableReplaced(
                f"the intermediate table {intermediate} is gone", where=self.where, remedy="run again: another is made"
            )
        return found

    def _apply(self, loader: Loader, row: StateRow, flush: Flush, judged: Judged) -> Job:
        text, values = self._bound(loader, row, flush)
        text = with_state(text, TableAt.after(row.at, flush.batches))
        labels = {**flush.labels("merge", loader.context.run_id), **judged.labels()}

        def submit(job_id: str) -> Job:
            job = self.bigquery.submit_query(job_id, text, values, labels)
            failpoint("bigquery.submitted")
            return job

        return self.attempts_on(row).run_until_done(submit, applies)

    def _bound(self, loader: Loader, row: StateRow, flush: Flush) -> tuple[str, Values]:
        """Rows without a unique key that come again are left out where the table has their coordinates."""
        coordinates, recreated = tuple[str, ...](), row.recreated
        if loader.rows.again is not None and self.table.mode in ("append", "delete"):
            wanted = [("kafka", part) for part in ("topic", "partition", "offset")]
            coordinates = tuple(c.name for c in self.columns if c.source in wanted)
            landed = loader.context.intermediate.landed().batches
            recreated = joined(recreated, recreated_topics(map(CommittedState.after, landed)))
            require_batch_column(recreated, self.table, self.where)
        return self._binding.bound(
            loader.intermediate,
            loader.schema,
            flush.first.number,
            flush.last.number,
            coordinates,
            recreated if coordinates else None,
        )

    def _again(self, context: MergeContext, batches: Sequence[LandedBatch], until: int | None = None) -> Reduction:
        """What comes again with these batches, up to the batch of this number or the last of them."""
        columns, landed = renamed_columns(self.spec, self.table), context.intermediate
        until = batches[-1].number if until is None else until
        wanted = Reduction.of_replay(self.spec, self.table, columns, landed, until, batches)
        return replace(wanted, with_time=True)

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        """As in the protocol. It takes a number in the sequence of attempts of the merges on top of `committed`.

        So no merge runs beside it or gets in between what it reads and writes; if it is late, its number is taken.
        """
        row = self._expect(committed)
        clock = Stages()
        newest = next(b for b in context.intermediate.landed().batches if b.number == committed.batch_number)
        loads = 1 + sum(b.counts.landed for b in batches) // self.table.rows_a_load
        flush = Flush((newest,), self.table.rows_a_load, by_key=loads)
        known = self.side_table.attempts(batches[0].number, batches[-1].number)
        self._remember_deletes(self._loader(context, row.intermediate), row)
        staging = self._replay_table(row)
        try:
            loader = self._loader(context, staging, self._again(context, batches, committed.batch_number))
            rows, judged = clock.time("load", lambda: loader.copy(flush))
            if self.keeps_deletes:
                loader.copy_deletes(row.intermediate, committed.batch_number)
            failpoint("bigquery.replay-loaded")
            job = clock.time("merge", lambda: self._replay(loader, row, flush))
        finally:
            self.bigquery.delete_table(staging)
        newest_by = loader.refusal.attempt if self.table.mode.startswith("upsert") else None
        self.side_table.forget(batches[0].number, batches[-1].number, known, newest_by)
        return Merged(self._counts(job, rows, judged), str(job.job_id), clock.seconds)

    def _replay_table(self, row: StateRow) -> str:
        """A table of this replay alone, with the same columns. It goes away by itself should the run die."""
        name = f"{row.intermediate}_replay_{uuid.uuid4().hex[:12]}"
        staged = self._staged(row.intermediate).schema
        table = intermediate_table(self.bigquery.table_id(name), self.pipeline, self.table.table, staged)
        table.labels = {**table.labels, "batchmerge-replay": "1"}
        table.expires = datetime.now(UTC) + timedelta(days=1)
        self.bigquery.create_table(table)
        return name

    def _replay(self, loader: Loader, row: StateRow, flush: Flush) -> Job:
        text, values = self._bound(loader, row, flush)
        token = uuid.uuid4().hex
        labels = {**flush.labels("replay", loader.context.run_id), "batchmerge-replay": token}
        job = self.attempts_on(row).step(
            lambda job_id: self.bigquery.submit_query(job_id, text, values, labels), applies
        )
        if job.labels.get("batchmerge-replay") != token:
            raise CommitFailed("another run was faster", where=self.where, remedy="plan again from what it committed")
        return job

    def _counts(self, job: Job, changes: int, judged: Judged) -> MergeCounts:
        found, counts = getattr(job, "dml_stats", None), MergeCounts(changes=changes)
        if found is not None:
            counts = MergeCounts(changes, found.inserted_row_count, found.updated_row_count, found.deleted_row_count)
        return with_refused(counts, self.spec, judged.refused, judged.out_of_range)

    @property
    def keeps_deletes(self) -> bool:
        """Where an order is named, deletes stay known: an older change that comes later must not bring a row back."""
        return self._order is not None and self.table.mode in ("upsert_delete", "delete")

    def attempts_on(self, row: StateRow) -> JobSequence:
        """The sequence of what is applied on top of a state."""
        prefix = merge_prefix(self.pipeline, self.table.table, row.generation, row.next_batch)
        return JobSequence(self.bigquery, prefix, self.table.time_limit_seconds)

    @property
    def clean_up(self) -> CleanUp:
        """What follows each merge."""
        return CleanUp(self.bigquery, self.pipeline, self.table, self.state, self.keeps_deletes, self.where)

    def _row(self) -> StateRow:
        row = self.state.read()
        if row is None:
            raise TableReplaced(
                "the table's row in `batchmerge_state` is gone", where=self.where, remedy="restore it, or run again"
            )
        return row

    def _expect(self, committed: CommittedState | None) -> StateRow:
        """The state row, if it still says what the caller planned from."""
        row = self._row()
        if row.commit_id != (committed.commit_id if committed else ""):
            raise CommitFailed("another run has committed", where=self.where, remedy="plan again from there")
        return row

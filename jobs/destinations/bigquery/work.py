"""What merges and replays of a BigQuery table share: the state row, how landed rows are loaded, the parameters."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from google.cloud.bigquery import Table

from jobs.batch import CommittedState, LandedBatch, MergeCounts
from jobs.changes.columns import UNCHANGED, names_unchanged_columns
from jobs.changes.reduction import Reduction, truncated_below
from jobs.changes.unchanged_columns import may_leave_unchanged, unchanged_parameters
from jobs.destinations.base import Destination
from jobs.destinations.bigquery.columns import OP, Column, destination_columns, staging_fields
from jobs.destinations.bigquery.direct_load import takes_landed_rows
from jobs.destinations.bigquery.field import AnyField, Field
from jobs.destinations.bigquery.flush import Flush, RefusedCounts, applies
from jobs.destinations.bigquery.job_sequence import JobSequence
from jobs.destinations.bigquery.limits import limited_columns
from jobs.destinations.bigquery.loading import Loader
from jobs.destinations.bigquery.made_with import made_with
from jobs.destinations.bigquery.names import attempts_prefix
from jobs.destinations.bigquery.read import count_rows
from jobs.destinations.bigquery.rows import RowShape
from jobs.destinations.bigquery.side_table import BigQuerySideTable
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.state import StateRow, TableAt, TableState, identity
from jobs.destinations.bigquery.statements import Statement, order_column, statement
from jobs.destinations.bigquery.tables import HAS_DELETES, as_partitioned, demanded_filter, lacks_deletes
from jobs.destinations.bigquery.unreadable_texts import AskedTexts
from jobs.destinations.merge_context import MergeContext
from jobs.destinations.refusal import Refusal
from jobs.destinations.refused_rows import with_refused
from jobs.destinations.requirements import require_batch_column, require_same_table
from jobs.failpoints import failpoint
from jobs.lineage import joined, recreated_topics
from jobs.spec.unchanged_columns import can_leave_unchanged, leaves_unchanged
from resources.bigquery import BigQuery, Job
from resources.connections import BigQueryConnection
from resources.errors import CommitFailed, TableReplaced
from sql import render

_LOG = logging.getLogger("batchmerge")

Values = dict[str, str | int | float | None]


@dataclass(frozen=True)
class TableWork(Destination):
    """A destination table with its staging table, its state row and its side table: the destination as merges see it.

    A class of its own, since the modules of merges cannot import that of the destination, which imports them.
    """

    table: BigQueryTable
    connection: BigQueryConnection

    @cached_property
    def bigquery(self) -> BigQuery:
        return BigQuery(self.table.connection, self.connection)

    @cached_property
    def columns(self) -> list[Column]:
        return destination_columns(self.spec, self.table)

    @cached_property
    def state(self) -> TableState:
        return TableState(self.bigquery, self.pipeline, self.table.table, self.table.intermediate_suffix)

    @cached_property
    def side_table(self) -> BigQuerySideTable:
        return BigQuerySideTable(self.bigquery, self.pipeline, self.table.table, self.name)

    def count_rows(self) -> int:
        """The rows of the table, if it exists."""
        return count_rows(self.bigquery, self.table.table, self.bigquery.find_table(self.table.table))

    def check_identity(self, row: StateRow, present: Table | None) -> None:
        """Checks that the present table is the one that this state is of (`require_same_table`)."""
        if row.committed:
            found = identity(present) if present else None
            options = self.table, self.name, self.count_rows, self.table.on_replaced
            require_same_table(row.committed, row.table_created, found, *options)

    @property
    def order(self) -> Column | None:
        return order_column(self.spec, self.columns)

    @property
    def staged(self) -> list[Field]:
        """The staging table's schema."""
        return staging_fields(
            self.columns,
            self.order,
            names_unchanged=can_leave_unchanged(self.table) and names_unchanged_columns(self.spec),
            says_op=takes_landed_rows(self.spec, self.table, self.columns),
        )

    @property
    def keeps_deletes(self) -> bool:
        """Whether merged deletes are kept: with `order_by` an older change may come later, and must not undo them."""
        return self.order is not None and self.table.loses_rows

    def expect(self, committed: CommittedState | None) -> StateRow:
        """The state row, if it still says what the caller planned from."""
        row = self.state.read()
        if row is None:
            self.state.require_only_writer()
            raise TableReplaced(
                "the table's row in `batchmerge_state` is gone", where=self.name, remedy="restore it, or run again"
            )
        if row.commit_id != (committed.commit_id if committed else ""):
            raise CommitFailed("another run has committed", where=self.name, remedy="plan again from there")
        return row

    def loads_after(self, row: StateRow) -> JobSequence:
        """The sequence of attempts at the load that continues a state."""
        return self._attempts(row, "load", lambda _job: True)

    def attempts_on(self, row: StateRow) -> JobSequence:
        """The sequence of jobs that are applied to a state."""
        return self._attempts(row, "merge", applies)

    def _attempts(self, row: StateRow, work: Literal["load", "merge"], closes: Callable[[Job], bool]) -> JobSequence:
        prefix = attempts_prefix(self.pipeline, self.table.table, row.generation, work, row.next_batch)
        return JobSequence(self.bigquery, prefix, self.table.time_limit_seconds, closes)

    def submit(self, text: str, values: Values, labels: Mapping[str, str], job_id: str) -> Job:
        """Submits a statement on the table."""
        job = self.bigquery.submit_query(job_id, text, values, labels)
        failpoint("bigquery.submitted")
        return job

    def after(self, row: StateRow, flush: Flush) -> TableAt:
        """The table's state after this flush, which a run with another pipeline file may have begun."""
        order = self.spec.order_hash if flush.last.batch.meaning_hash == self.spec.meaning_hash else ""
        untraced_to = CommittedState.untraced_after(row.committed, flush.batches, self.table)
        return TableAt.after(row.at, flush.batches, order, untraced_to)

    def loader(self, context: MergeContext, staging_table: str, replayed: Reduction | None = None) -> Loader:
        schema, order = self.present_staging_table(staging_table).schema, self.order
        staged = {field.name for field in schema}
        found = self.bigquery.find_table(self.table.table)
        present = found.schema if found else ()
        refusal = self._refusal(context.intermediate.landed().batches, present)
        # Landed deletes may have a value: without `op` nothing would distinguish them from rows.
        takes_landed = takes_landed_rows(self.spec, self.table, self.columns, present) and OP in staged
        return Loader(
            bigquery=self.bigquery,
            context=context,
            staging_table=staging_table,
            schema=schema,
            shape=RowShape(
                columns=self.columns,
                order_by=order.source if order else None,
                names_unchanged=UNCHANGED.name in staged
                and may_leave_unchanged(self.spec, self.table, context.intermediate),
                judged=any(column.may_refuse for column in refusal.columns),
                deletes_are_rows=self.table.deletes_are_rows,
            ),
            table=self.table,
            where=self.name,
            refusal=refusal,
            side_table=self.side_table,
            replayed=replayed,
            target=found,
            made_with=made_with(self.spec, self.table, self.columns, present),
            as_landed=replayed is None and takes_landed,
        )

    def _refusal(self, batches: Sequence[LandedBatch], present: Sequence[AnyField]) -> Refusal:
        asks = partial(AskedTexts, self.bigquery, self.name)
        return Refusal(
            where=self.name,
            columns=limited_columns(self.spec, self.table, self.columns, present, asks),
            on_bad_record=self.spec.on_bad_record,
            out_of_range=self.table.out_of_range,
            attempt=uuid.uuid4().hex,
            topic_ids={topic: id_ for b in batches for topic, id_ in b.batch.topic_ids.items()},
        )

    def present_staging_table(self, name: str) -> Table:
        found = self.bigquery.find_table(name)
        if found is None:
            raise TableReplaced(
                f"the staging table {name} is gone", where=self.name, remedy="run again: another is made"
            )
        return found

    def remove_staged(self, row: StateRow, last: int, keep_deletes: bool) -> None:
        """Removes batches up to this one from the staging table."""
        staging_table = self.bigquery.table_id(row.staging_table)
        text = render("bigquery", "clean_up", staging_table=staging_table, keep_deletes=keep_deletes)
        self.bigquery.change(text, {"last": last}, self.name)

    def forget_deletes(self, row: StateRow) -> None:
        """Forgets the kept deletes, which have another key or order than the changes to come."""
        self.remove_staged(row, row.next_batch - 1, keep_deletes=False)
        if lacks_deletes(found := self.present_staging_table(row.staging_table)):
            self.bigquery.add_labels(found, HAS_DELETES)

    def remember_deletes(self, context: MergeContext, row: StateRow) -> None:
        """Fills a staging table that replaces a lost one with the deletes that were merged with this key and order.

        The merged rows come with them; the next clean-up removes those. If records were read again, their newest
        reading counts, as in a replay of all batches.
        """
        if not self.keeps_deletes or row.at is None:
            return
        if not lacks_deletes(self.present_staging_table(row.staging_table)):
            return
        known = context.intermediate.landed().since(row.at.deletes_since)
        merged = tuple(b for b in known.batches if b.number <= row.at.committed.batch_number)
        if not known.complete or not merged:
            _LOG.warning(
                "%s: the staging table was lost, and with it the deletes before batch %d, the first that is still "
                "landed: if a change that is older than such a delete still comes, it brings the row back",
                self.name,
                merged[0].number if merged else row.next_batch,
            )
        if merged:
            revised = any(b.batch.revises is not None for b in merged)
            loader = self.loader(context, row.staging_table, self.replayed(context, merged) if revised else None)
            # Refused rows of these batches were reported when they were merged.
            loader.copy(Flush(merged), writes_dead_letters=False)
        self.bigquery.add_labels(self.present_staging_table(row.staging_table), HAS_DELETES)

    def bound(self, loader: Loader, row: StateRow, flush: Flush) -> tuple[str, Values]:
        """The statement's text and parameters, some of which are read from the staging table.

        Replayed rows without a unique key are left out if the table has their coordinates. The schema of the
        staging table, not the pipeline file, says which optional columns it has: rows that were loaded under an
        earlier file keep their meaning.
        """
        target, source = (self.bigquery.table_id(name) for name in (self.table.table, loader.staging_table))
        staged = {field.name for field in loader.schema}
        entry = as_partitioned(self.table, loader.target)
        wanted = statement(self.spec, entry, self.columns, target, source, says_op=OP in staged)
        wanted = replace(wanted, whole=demanded_filter(loader.target))
        values = Values(first=flush.first.number, last=flush.last.number)
        if loader.replayed is not None and not self.table.has_unique_key and self.table.has_coordinates:
            parts = [("kafka", part) for part in ("topic", "partition", "offset")]
            landed = loader.context.intermediate.landed().batches
            recreated = joined(row.recreated, recreated_topics(map(CommittedState.after, landed)))
            require_batch_column(recreated, self.table, self.name)
            wanted = replace(
                wanted,
                coordinates=tuple(c.name for c in self.columns if c.source in parts),
                recreated=tuple(map(tuple, recreated.values())),
            )
            values |= {f"recreated_{n}": topic for n, topic in enumerate(recreated)}
        below = truncated_below(self.spec, self.table, flush.last)
        if below is not None:
            truncates = CommittedState.after(flush.last).truncates(row.committed) is not None
            wanted, values["below"] = replace(wanted, truncated=True, truncates=truncates), below
        return self._looked_up(wanted, values, UNCHANGED.name in staged)

    def _looked_up(self, wanted: Statement, values: Values, names_unchanged: bool) -> tuple[str, Values]:
        """The text and parameters, with unchanged columns and key bounds from the staging table where they help."""
        if leaves_unchanged(self.spec, self.table) and names_unchanged:
            names = [row["name"] for row in self.bigquery.read(wanted.unchanged_columns_text(), values, self.name)]
            wanted = wanted.keeping(names)
        if wanted.bounds:
            found = self.bigquery.read(wanted.bounds_text(), values, self.name)[0]
            if found["nulls"] or found[wanted.bounds[0].low] is None:
                wanted = wanted.unbounded()
            else:
                values |= {name: found[name] for b in wanted.bounds for name in (b.low, b.high)}
        return wanted.text(), values | unchanged_parameters([c.source[-1] for c in wanted.unchanged])

    def replayed(self, context: MergeContext, batches: Sequence[LandedBatch], until: int | None = None) -> Reduction:
        """The changes that a replay of these batches takes, up to the batch of this number or the last of them."""
        last = batches[-1].number if until is None else until
        wanted = self.reductions(context.intermediate).replay(last, batches)
        return replace(wanted, with_time=True)

    def counts(self, job: Job, changes: int, refused: RefusedCounts) -> MergeCounts:
        found, counts = getattr(job, "dml_stats", None), MergeCounts(changes=changes)
        if found is not None:
            counts = MergeCounts(changes, found.inserted_row_count, found.updated_row_count, found.deleted_row_count)
        return with_refused(counts, self.spec, refused.refused, refused.out_of_range)

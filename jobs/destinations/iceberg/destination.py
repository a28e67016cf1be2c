"""A destination table in Iceberg: one branch per attempt, one conditional commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyiceberg.table import Table

from jobs.batch import PREFIX, CommittedState, LandedBatch, MergeCounts
from jobs.changes.copy_task import copy, files_to_copy, takes_copies
from jobs.changes.unchanged_columns import may_leave_unchanged
from jobs.destinations.iceberg.kept_deletes import KeptDeletes
from jobs.destinations.iceberg.layout_differences import layout_differences
from jobs.destinations.iceberg.prepare import Preparation
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.iceberg.state import commit_reference, committed_state
from jobs.destinations.iceberg.transaction import CatalogTransaction
from jobs.destinations.merge_context import MergeContext, Merged, Transaction
from jobs.destinations.reduced import ReducedDestination, Step
from jobs.destinations.requirements import require_batch_column, require_planned
from jobs.destinations.row_values import RowValues
from jobs.destinations.stages import Stages
from jobs.destinations.takes import Takes
from jobs.failpoints import failpoint
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.hand_over import HandOver
from jobs.iceberg.history import PipelineBranch, state_properties
from jobs.iceberg.row_delta import RowDelta, can_be_taken
from jobs.iceberg.schema import arrow_schema
from jobs.iceberg.table_commit import TableCommit
from jobs.iceberg.table_property import RECREATED_TOPICS, SKIPPED_BATCHES
from jobs.lineage import joined, recreated_topics
from jobs.maintenance.report import Done
from jobs.offsets import reached
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog
from sql import render

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.destinations.iceberg.merge import WantedChanges
    from jobs.destinations.iceberg.read import IcebergReader

Commit = TypeVar("Commit", bound=TableCommit)


@dataclass(frozen=True)
class IcebergDestination(ReducedDestination):
    """`kind: iceberg` of a pipeline file."""

    table: IcebergTable
    catalog: IcebergCatalog

    @property
    def _branch(self) -> PipelineBranch:
        return PipelineBranch(self.pipeline, self.table.branch)

    def committed(self) -> CommittedState | None:
        return committed_state(self._load(), self.pipeline, self.table)

    def _load(self) -> Table | None:
        return self.catalog.load(self.table.table)

    def layout_differences(self) -> list[str]:
        return list(layout_differences(self.table, self._load))

    def drop_state(self) -> bool:
        if self._load() is not None:
            raise ConfigurationError(
                "the table carries its committed state itself",
                where=self.name,
                remedy="drop the table to fill it again: its state is in the table",
            )
        return False

    def hand_over(self, to: str, at: CommittedState | None) -> bool:
        committed = self.committed()
        if committed is None:
            return False
        require_planned(committed, at, self.name)
        self._commit(HandOver, committed).to(to)
        return True

    def drop(self) -> bool:
        if self.kept_deletes:
            self.catalog.drop(self.kept_deletes)
        return self.catalog.drop(self.table.table)

    def prepare(self, dry_run: bool = False) -> list[str]:
        return Preparation(self.catalog, self.table, self).run(dry_run)

    def present_schema(self) -> pa.Schema | None:
        found = self._load()
        return arrow_schema(found) if found else None

    @cached_property
    def row_schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.table_type, c.nullable) for c in self.row_columns])

    def takes(self, names: Collection[str]) -> Mapping[str, Takes]:
        return {name: replace(one, type=_taken(one.type)) for name, one in super().takes(names).items()}

    def apply(self, step: Step) -> Merged:
        preparation = Preparation(self.catalog, self.table, self)
        if step.before and step.means_other:
            preparation.renew_kept_deletes(step.before, partial(self._commit, Append, step.before))
        kept_deletes = preparation.note_kept_deletes(step.before)
        if kept_deletes:
            kept_deletes.begin_with_those_of_main(step.context)
        changes, mirrored = self._changes(step, kept_deletes), state_properties(step.after, self.table.branch)
        if not step.again:
            mirrored |= self._recreated_by(step)
            if self._skips_batches(step):
                mirrored |= SKIPPED_BATCHES.written(True, self.pipeline, self.table.branch)
        write = self._append if self.table.mode == "append" else self._merge
        return write(step, changes, mirrored)

    def _skips_batches(self, step: Step) -> bool:
        """Whether the step begins with a reset that leaves landed batches out of the table for good."""
        first = step.batches[0].batch
        # As batch 1 a reset only says where the pipeline begins: nothing was landed before.
        if first.continues is None or first.number == 1:
            return False
        if step.before is not None:
            # A reset of offsets may continue a state that is behind the one whose offsets it keeps.
            kept = first.continues.get(first.previous_commit_id or "", {})
            return not reached(step.before.offsets, kept)
        if not self._branch.was_given(self.catalog.require(self.table.table)):
            return True
        # It has all of the pipeline before. The first reset continues that; a later one skips what was landed since.
        landed = step.context.intermediate.landed().batches
        return any(b.batch.commit_id == first.previous_commit_id for b in landed)

    def _recreated_by(self, step: Step) -> dict[str, str]:
        """The table property about recreated topics, if one was recreated since the previous state."""
        states = [*([step.before] if step.before else []), *map(CommittedState.after, step.batches)]
        recreated = recreated_topics(states)
        if not recreated:
            return {}
        known = self._branch.recreated(self._load())
        return RECREATED_TOPICS.written(joined(known, recreated), self.pipeline, self.table.branch)

    def check_replay(self) -> None:
        if not self.table.has_unique_key:
            self._recreated()

    def _recreated(self) -> dict[str, list[int]]:
        """Topics that were recreated since the table's first rows.

        Raises:
            ConfigurationError: the rows lack the column that tells which topic of that name they are from.
        """
        found = self._branch.recreated(self._load())
        require_batch_column(found, self.table, self.name)
        return found

    def _changes(self, step: Step, kept_deletes: KeptDeletes | None) -> WantedChanges:
        from jobs.destinations.iceberg.few_changes import few_changes
        from jobs.destinations.iceberg.merge import WantedChanges
        from resources.spark import parallelism

        key, landed = self.spec.changes.key, step.context.intermediate
        leaves_unchanged = may_leave_unchanged(self.spec, self.table, landed)
        only_missing = step.again and not self.table.has_unique_key and self.table.has_coordinates

        def cores() -> int:
            return parallelism(step.context.session())

        return WantedChanges(
            session=step.context.session,
            one_task=step.context.one_task,
            wanted=step.wanted,
            kept_deletes=kept_deletes,
            null_safe=bool(key and key.nulls == "match"),
            landed_schema=lambda: arrow_schema(landed.catalog.require(landed.identifier), step.wanted.snapshot),
            leaves_unchanged=leaves_unchanged,
            truncated_below=step.truncated_below,
            few=partial(few_changes, landed, step.wanted, step.batches, leaves_unchanged, cores),
            recreated=self._recreated() if only_missing else None,
        )

    def _append(self, step: Step, changes: WantedChanges, mirrored: dict[str, str]) -> Merged:
        from resources.spark_errors import spark_errors

        context, clock, table = step.context, Stages(), self.catalog.require(self.table.table)
        can_copy = takes_copies(table) and not step.again
        commit: Append | Attempt
        if can_copy and (files := files_to_copy(context.intermediate, step.wanted, step.batches)):
            commit = append = self._commit(Append, step.before, context.transaction, table)
            write = partial(copy, context.session, context.one_task, files, step.wanted, append)
        else:
            commit = attempt = self._commit(Attempt, step.before, context.transaction, table)
            write = partial(changes.append_to, attempt)
        failpoint("merge.begun")
        with spark_errors(self.name):
            rows = clock.time("write", write)
        failpoint("merge.written")
        summary, rebase = self._summary(step), not changes.only_missing
        snapshot = clock.time("publish", lambda: commit.publish_append(summary, mirrored, rebase=rebase))
        if context.transaction is None:
            failpoint("merge.published")
        return Merged(MergeCounts(changes=rows, inserted=rows), str(snapshot), clock.seconds)

    def _merge(self, step: Step, changes: WantedChanges, mirrored: dict[str, str]) -> Merged:
        from resources.spark_errors import spark_errors

        context, clock, table = step.context, Stages(), self.catalog.require(self.table.table)
        summary = self._summary(step)
        duplicates: int | None = None
        if can_be_taken(table) and changes.truncated_below is None:
            table = self._with_present_columns(table, step.before)
            delta = self._commit(RowDelta, step.before, context.transaction, table)
            failpoint("merge.begun")
            with spark_errors(self.name):
                report = clock.time("write", lambda: changes.write_to(delta))
            failpoint("merge.written")
            counts, duplicates = report.counts, report.duplicates
            snapshot = clock.time("publish", lambda: delta.publish_append(summary, mirrored, rebase=False))
        else:
            attempt = self._commit(Attempt, step.before, context.transaction, table)
            failpoint("merge.begun")
            summary = attempt.carried(summary | attempt.summary)
            with spark_errors(self.name), changes.cached(attempt) as cached:
                counts = clock.time("plan", lambda: cached.effect_on(attempt))
                clock.time("write", lambda: cached.merge_into(attempt, summary))
            failpoint("merge.written")
            snapshot = clock.time("publish", lambda: attempt.publish_head(summary, mirrored))
        if context.transaction is None:
            failpoint("merge.published")
        return Merged(counts, str(snapshot), clock.seconds, duplicates)

    def _with_present_columns(self, table: Table, before: CommittedState | None) -> Table:
        """The table with a snapshot that has its present columns. Spark reads a snapshot with the schema that it was
        made with; if columns were added since, an empty commit makes a newer one."""
        head = table.snapshot_by_name(self.table.branch)
        if head is None or head.schema_id == table.metadata.current_schema_id:
            return table
        stamp = self._commit(Append, before, table=table)
        stamp.publish_append(before.to_properties() if before else {}, {})
        return self.catalog.require(self.table.table)

    def _commit(
        self,
        kind: type[Commit],
        committed: CommittedState | None,
        transaction: Transaction | None = None,
        table: Table | None = None,
    ) -> Commit:
        assert transaction is None or isinstance(transaction, CatalogTransaction), "from our own `transaction`"
        publish = transaction.add if transaction else None
        skip = self.table.on_rollback == "skip"
        return kind(self.catalog, self.table.table, self.pipeline, committed, self.table.branch, skip, publish, table)

    def _summary(self, step: Step) -> dict[str, str]:
        return {**step.after.to_properties(), PREFIX + "run-id": step.context.run_id}

    def read(self, session: Callable[[], SparkSession]) -> IcebergReader:
        from jobs.destinations.iceberg.read import IcebergReader

        return IcebergReader(self.pipeline, RowValues(self.row_columns), self.catalog, self.table, session)

    def touched_duplicates(self, context: MergeContext, batches: Sequence[LandedBatch]) -> int:
        from jobs.destinations.iceberg.read import branch_path
        from resources.spark_errors import spark_errors

        key = self.spec.changes.key
        if not batches or key is None:
            return 0
        target = branch_path(self.catalog, self.table)
        query = render("spark", "duplicate_keys", target=target, landed=context.intermediate.path, keys=key.columns)
        with spark_errors(self.name):
            arguments = {"first": batches[0].number, "last": batches[-1].number}
            found = context.spark.sql(query, args=arguments).first()
        return int(found["duplicates"]) if found else 0

    def spark_settings(self) -> Mapping[str, str]:
        return self.catalog.spark_settings()

    def commit_reference(self, batch_number: int) -> str | None:
        return commit_reference(self._load(), self.pipeline, self.table.branch, batch_number)

    def maintain(self, session: Callable[[], SparkSession]) -> Iterator[Done]:
        from jobs.destinations.iceberg.maintain import maintain

        options = self.spec.maintenance
        return maintain(self.pipeline, self.catalog, self.table, self.kept_deletes, options, session)

    def transaction(self) -> CatalogTransaction:
        return CatalogTransaction(self.catalog)


def _taken(kind: pa.DataType) -> pa.DataType:
    """The type of a column, for records: a type without a type string for times, which are not written into Iceberg."""
    return pa.time64("ns") if pa.types.is_time(kind) else kind

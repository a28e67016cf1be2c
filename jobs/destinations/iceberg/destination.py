"""A destination table in Iceberg: one branch per attempt, one conditional commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.table import Table

from jobs.batch import PREFIX, CommittedState, LandedBatch, MergeCounts
from jobs.changes.copy_task import copy, files_to_copy, takes_copies
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.reduction import Reduction
from jobs.changes.unchanged_columns import may_leave_unchanged
from jobs.destinations.base import Destination
from jobs.destinations.iceberg.prepare import Preparation
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.iceberg.state import commit_reference, committed_state
from jobs.destinations.iceberg.transaction import CatalogTransaction
from jobs.destinations.merge_context import MergeContext, Merged, Transaction
from jobs.destinations.requirements import require_batch_column
from jobs.destinations.row_values import RowValues
from jobs.destinations.stages import Stages
from jobs.destinations.takes import Takes, of_schema
from jobs.failpoints import failpoint
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.hand_over import HandOver
from jobs.iceberg.history import recreated_properties, recreated_topics_of, state_properties
from jobs.iceberg.row_delta import RowDelta, can_be_taken
from jobs.iceberg.schema import arrow_schema
from jobs.iceberg.table_commit import TableCommit
from jobs.lineage import recreated_topics
from jobs.maintenance.report import Done
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog
from sql import render

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.destinations.iceberg.merge import Changes
    from jobs.destinations.iceberg.read import IcebergReader

Commit = TypeVar("Commit", bound=TableCommit)


@dataclass(frozen=True)
class IcebergDestination(Destination):
    """`kind: iceberg` of a pipeline file."""

    table: IcebergTable
    catalog: IcebergCatalog

    def committed(self) -> CommittedState | None:
        return committed_state(self._load(), self.pipeline, self.table)

    def _load(self) -> Table | None:
        return self.catalog.load(self.table.table)

    def drop_state(self) -> bool:
        if self._load() is not None:
            raise ConfigurationError(
                "the table carries its committed state itself",
                where=self.name,
                remedy="drop the table, if it is to be filled again: its state goes with it",
            )
        return False

    def hand_over(self, to: str) -> bool:
        committed = self.committed()
        if committed is None:
            return False
        self._commit(HandOver, committed).to(to)
        return True

    def drop(self) -> bool:
        if self.tombstones:
            self.catalog.drop(self.tombstones)
        return self.catalog.drop(self.table.table)

    def prepare(self, dry_run: bool = False) -> list[str]:
        options = self.pipeline, self.spec, self.table, self.row_columns, self.tombstones
        return Preparation(self.catalog, *options).run(dry_run)

    def takes(self, names: Collection[str]) -> Mapping[str, Takes]:
        found = self._load()
        return of_schema(arrow_schema(found) if found else None, names)

    def merge(self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]) -> Merged:
        from jobs.destinations.iceberg.few_changes import few_changes

        state = CommittedState.after(batches[-1])
        if committed and batches[-1].batch.revises is not None:
            return self._replay_newest(context, committed, state, batches)
        wanted = Reduction.of_table(
            self.spec, self.table, self.row_columns, context.intermediate, batches[0].number, batches[-1]
        )
        mirrored = state_properties(state, self.table.branch)
        recreated = recreated_topics([*([committed] if committed else []), *map(CommittedState.after, batches)])
        if recreated:
            known = recreated_topics_of(self._load(), self.pipeline, self.table.branch)
            mirrored |= recreated_properties(known, recreated, self.pipeline, self.table.branch)
        changes = self._changes(context, wanted)
        if self.table.mode == "append":
            landed = partial(files_to_copy, context.intermediate, wanted, batches)
            return self._append(context, committed, state, changes, mirrored, landed)
        changes = replace(
            changes, few=partial(few_changes, context.intermediate, wanted, batches, changes.leaves_unchanged)
        )
        return self._write(context, committed, state, changes, mirrored)

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        return self._replay_newest(context, committed, committed, batches)

    def _replay_newest(
        self, context: MergeContext, committed: CommittedState, state: CommittedState, batches: Sequence[LandedBatch]
    ) -> Merged:
        """For the keys that these batches name the newest landed change; rows without a unique key if they lack."""
        landed, until = context.intermediate, state.batch_number
        changes = self._changes(
            context, Reduction.of_replay(self.spec, self.table, self.row_columns, landed, until, batches)
        )
        if self.table.mode in ("append", "delete"):
            changes = changes.missing_in(self._recreated())
        return self._write(context, committed, state, changes, state_properties(state, self.table.branch))

    def _write(
        self,
        context: MergeContext,
        committed: CommittedState | None,
        state: CommittedState,
        changes: Changes,
        mirrored: dict[str, str],
    ) -> Merged:
        if self.table.loses_rows:
            changes = replace(changes, truncated_below=state.truncates(committed))
        write = self._append if self.table.mode == "append" else self._merge
        return write(context, committed, state, changes, mirrored)

    def check_replay(self) -> None:
        if self.table.mode in ("append", "delete"):
            self._recreated()

    def _recreated(self) -> dict[str, list[int]]:
        """Topics that were recreated since the table has rows.

        Raises:
            ConfigurationError: the rows do not say which topic of that name they are from.
        """
        found = recreated_topics_of(self._load(), self.pipeline, self.table.branch)
        require_batch_column(found, self.table, self.name)
        return found

    def _changes(self, context: MergeContext, wanted: Reduction) -> Changes:
        from jobs.destinations.iceberg.merge import Changes

        key = self.spec.changes.key
        return Changes(
            session=context.session,
            one_task=context.one_task,
            wanted=wanted,
            tombstones=(self.catalog.name, *self.tombstones.split(".")) if self.tombstones else None,
            null_safe=bool(key and key.nulls == "match"),
            leaves_unchanged=may_leave_unchanged(self.spec, self.table, context.intermediate),
        )

    def _append(
        self,
        context: MergeContext,
        committed: CommittedState | None,
        state: CommittedState,
        changes: Changes,
        mirrored: dict[str, str],
        landed: Callable[[], PlannedFiles | None] = lambda: None,
    ) -> Merged:
        from resources.spark import spark_errors

        clock, table = Stages(), self.catalog.require(self.table.table)
        commit: Append | Attempt
        if takes_copies(table) and (files := landed()):
            commit = append = self._commit(Append, committed, context.transaction, table)
            write = partial(copy, context.session, context.one_task, files, changes.wanted, append)
        else:
            commit = attempt = self._commit(Attempt, committed, context.transaction, table)
            write = partial(changes.append_to, attempt)
        failpoint("merge.begun")
        with spark_errors(self.name):
            rows = clock.time("write", write)
        failpoint("merge.written")
        summary = {**state.to_properties(), **self._run(context)}
        snapshot = clock.time("publish", lambda: commit.publish_append(summary, mirrored, rebase=not changes.missing))
        if context.transaction is None:
            failpoint("merge.published")
        return Merged(MergeCounts(changes=rows, inserted=rows), str(snapshot), clock.seconds)

    def _merge(
        self,
        context: MergeContext,
        committed: CommittedState | None,
        state: CommittedState,
        changes: Changes,
        mirrored: dict[str, str],
    ) -> Merged:
        from resources.spark import spark_errors

        clock = Stages()
        summary = {**state.to_properties(), **self._run(context)}
        table = self.catalog.require(self.table.table)
        duplicates: int | None = None
        if can_be_taken(table) and changes.truncated_below is None:
            delta = self._commit(RowDelta, committed, context.transaction, table)
            failpoint("merge.begun")
            with spark_errors(self.name):
                effect = clock.time("write", lambda: changes.write_to(delta))
            failpoint("merge.written")
            counts = MergeCounts(effect.changes, effect.inserted, effect.updated, effect.deleted)
            duplicates = effect.duplicates
            snapshot = clock.time("publish", lambda: delta.publish_append(summary, mirrored, rebase=False))
        else:
            attempt = self._commit(Attempt, committed, context.transaction, table)
            failpoint("merge.begun")
            summary = attempt.carried(summary | attempt.summary)
            with spark_errors(self.name):
                counts = clock.time("plan", lambda: changes.effect_on(attempt))
                clock.time("write", lambda: changes.merge_into(attempt, summary))
            failpoint("merge.written")
            snapshot = clock.time("publish", lambda: attempt.publish_head(summary, mirrored))
        if context.transaction is None:
            failpoint("merge.published")
        return Merged(counts, str(snapshot), clock.seconds, duplicates)

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

    def _run(self, context: MergeContext) -> dict[str, str]:
        return {PREFIX + "run-id": context.run_id}

    def read(self, spark: SparkSession) -> IcebergReader:
        from jobs.destinations.iceberg.read import IcebergReader

        return IcebergReader(RowValues(self.row_columns), self.catalog, self.table, spark)

    def touched_duplicates(self, context: MergeContext, batches: Sequence[LandedBatch]) -> int:
        from jobs.destinations.iceberg.read import branch_path
        from resources.spark import spark_errors

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
        return maintain(self.pipeline, self.catalog, self.table, self.tombstones, options, session)

    def transaction(self) -> CatalogTransaction:
        return CatalogTransaction(self.catalog)

"""Destinations that write the changes that Spark reduced, one change per key, in one commit with the state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from jobs.batch import CommittedState, LandedBatch
from jobs.changes.reduction import Reduction
from jobs.destinations.base import Destination
from jobs.destinations.merge_context import MergeContext, Merged
from jobs.destinations.requirements import require_create
from jobs.destinations.takes import Takes, of_schema
from jobs.evolution import SchemaChange, plan_evolution


@dataclass(frozen=True)
class Step:
    """One commit of a table: from a state to the next one, or a replay, which does not move the state.

    Attributes:
        destination: the table.
        batches: landed batches whose changes are written.
        wanted: these changes, as Spark reduces them.
        again: the table may already have rows of these records, so an append table gets only those that it lacks.
    """

    destination: Destination
    context: MergeContext
    batches: Sequence[LandedBatch]
    wanted: Reduction
    before: CommittedState | None
    after: CommittedState
    again: bool

    @property
    def truncated_below(self) -> int | None:
        """Rows with a smaller `order_by` value have to be deleted; None: no rows."""
        return self.after.truncates(self.before) if self.destination.table.loses_rows else None

    @property
    def means_other(self) -> bool:
        """Whether the changes have another key or order than earlier ones, so that the kept deletes are void."""
        return self.before is not None and self.before.orders_otherwise(self.after.meaning_hash, self.after.order)

    def changes(self) -> pa.Table:
        """The changes, read into this process's memory: the table's columns, and ``__op, __order, __kafka``."""
        from resources.spark_errors import spark_errors

        with spark_errors(self.destination.name):
            return self.wanted.rows(self.context.spark).toArrow()


@dataclass(frozen=True)
class ReducedDestination(Destination):
    """Subclasses say which columns the table has, and how they apply a step; merges and replays follow from that."""

    @abstractmethod
    def apply(self, step: Step) -> Merged:
        """Writes the changes to the table and moves the state, both or neither.

        Raises:
            CommitFailed: the table is no longer at `step.before`. CommitStateUnknown: the response was lost.
        """

    @abstractmethod
    def present_schema(self) -> pa.Schema | None:
        """The table's columns; None if it does not exist."""

    def merge(self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]) -> Merged:
        newest = batches[-1]
        wanted = self.reductions(context.intermediate).merge(batches[0].number, newest)
        untraced_to = CommittedState.untraced_after(committed, batches, self.table)
        after = CommittedState.after(newest, self.spec.order_hash, untraced_to)
        again = newest.batch.revises is not None
        return self.apply(Step(self, context, batches, wanted, committed, after, again))

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        wanted = self.reductions(context.intermediate).replay(committed.batch_number, batches)
        return self.apply(Step(self, context, batches, wanted, committed, committed, again=True))

    def takes(self, names: Collection[str]) -> Mapping[str, Takes]:
        return of_schema(self.present_schema(), names)

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The columns of the table's rows."""
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.row_columns])

    @property
    def kept_deletes_schema(self) -> pa.Schema:
        """The columns of `kept_deletes`: of the key, and the order of its newest delete."""
        keys = [(c.name, c.type) for c in self.row_columns if c.is_key]
        order = next(c for c in self.row_columns if c.name == self.spec.changes.ordered_by)
        return pa.schema([*keys, ("__order", order.type)])

    def evolution(self, present: pa.Schema | None) -> list[SchemaChange]:
        """The schema changes after which the rows fit into a table with these columns (None: there is no table).

        Raises:
            SchemaRefused: a change that no rule allows. ConfigurationError: the table may not be created.
        """
        if present is None:
            require_create(self.table, self.name)
            return []
        return plan_evolution(self.name, present, self.row_schema, self.table.evolve, self.spec.ignore_case)

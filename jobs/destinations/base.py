"""The interface of destination tables, of any kind (`jobs.destinations.kind`).

A merge reads landed changes in one of two ways:

- `Destination.reductions` gives Spark SQL of the changes for the table (a `Reduction`: `landed`, `of`, bound to
  `parameters`): filtered by its mode and routes, the last one of each key. `MergeContext.spark` runs it.
- `jobs.changes.files.LandedFiles` reads landed rows as Arrow, directly from their files, without Spark.

Three rules make a table's content independent of how the log was cut into batches:

- The mode's filter comes before the reduction to one change per key: `append` and `upsert` first drop deletes.
- If `spec.changes.ordered_by` names a column, a change whose value is smaller than the stored one is dropped, and a
  delete's value is kept, so that an older change cannot bring the row back. Else the order is batch, then ``i``.
- Rows without a unique key (`append`, `delete`) are distinguished by topic, partition and offset, for replays and for
  batches that revise others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from jobs.destinations.registry import kind_of
from resources.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.batch import CommittedState, LandedBatch
    from jobs.changes.landed_rows import LandedRows
    from jobs.changes.reduction import Reductions
    from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
    from jobs.destinations.leases import LeaseState
    from jobs.destinations.merge_context import MergeContext, Merged, Transaction
    from jobs.destinations.reading import TableReader
    from jobs.destinations.side_table import SideTable
    from jobs.destinations.takes import Takes
    from jobs.maintenance.report import Done
    from jobs.spec.columns import RowColumn
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.tables import Table


def lack(states: Sequence[CommittedState | None], commit_id: str) -> bool:
    """Whether one of these states of a table's parts lacks the newest batch, which has this commit id."""
    return any(state is None or state.commit_id != commit_id for state in states)


def oldest(states: Sequence[CommittedState | None]) -> CommittedState | None:
    """The state of a table whose parts have these states: the oldest; None if one part has none."""
    there = [state for state in states if state]
    return min(there, key=lambda state: state.batch_number) if len(there) == len(states) else None


@dataclass(frozen=True)
class Destination(ABC):
    """A destination table with its committed state.

    `merge` must be atomic with the state: after a crash at any moment either all of it is committed, or the next
    `merge` of the same batches makes the same table. It must be refused (`CommitFailed`) if the table's committed
    state is no longer `committed`, whether another run was faster or this one slept: by a compare-and-set inside the
    commit, never by a read before it.

    Errors are those of `resources.errors`: problems that may pass are a `TransientError`, those that a person has to
    fix a `TerminalError`, which names where and the remedy.

    Attributes:
        pipeline: the pipeline's name; no other pipeline may write the table (`jobs.only_writer`).
        table: its entry in the pipeline file.
    """

    pipeline: str
    spec: PipelineSpec
    table: Table

    @property
    def name(self) -> str:
        """The table's name for people (`Table.title`)."""
        return self.table.title

    @cached_property
    def row_columns(self) -> list[RowColumn]:
        """The columns of the table's rows, with their names in the table (`Kind.columns`)."""
        return kind_of(self.table).columns(self.spec, self.table)

    @property
    def kept_deletes(self) -> str | None:
        """The table that keeps the order values of deletes; None if there is none, or the table itself keeps them."""
        return kind_of(self.table).kept_deletes(self.spec, self.table)

    def reductions(self, landed: LandedRows) -> Reductions:
        """How these landed changes become the table's rows."""
        from jobs.changes.reduction import Reductions

        return Reductions(self.spec, self.table, self.row_columns, landed)

    # The protocol.

    @abstractmethod
    def committed(self) -> CommittedState | None:
        """The table's committed state; None before its first batch.

        Raises:
            TableReplaced: dropped and recreated, or rolled back while `on_rollback` is `hold`.
        """

    def parts(self) -> Sequence[Destination]:
        """The endpoints over which rows are spread, each with its own committed state; otherwise the table itself.
        `committed` is the oldest of these states."""
        return [self]

    def states(self) -> list[CommittedState | None]:
        """The committed state of each part; None also for a part that does not respond: a merge reports the problem."""
        parts = self.parts()
        if len(parts) == 1:
            return [self.committed()]
        found: list[CommittedState | None] = []
        for part in parts:
            try:
                found.append(part.committed())
            except Unavailable:
                found.append(None)
        return found

    def lacks(self, commit_id: str) -> bool:
        """Whether any part lacks the newest batch, which has this commit id."""
        return lack(self.states(), commit_id)

    def settle(self) -> None:  # noqa: B027  # nothing to do if data and state are committed together
        """Updates the committed state if a run died between its commit and the update of the state.

        Called where no merge does it first: before a replay and a comparison, which begin with the committed state; and
        before an offset reset, when the landed batches that prove the commit may be gone.

        Raises:
            CommitFailed: another run has updated it meanwhile.
        """

    @abstractmethod
    def prepare(self, dry_run: bool = False) -> list[str]:
        """Creates the table or evolves its schema; with `dry_run` only returns what it would do.

        Raises:
            SchemaRefused, ConfigurationError: before anything is written; also if another pipeline writes the table
                (`jobs.only_writer`).
        """

    def layout_differences(self) -> list[str]:
        """Options for new tables in which the existing one differs from the file, for people (`layout.differences`)."""
        return []

    def takes(self, names: Collection[str]) -> Mapping[str, Takes]:
        """The types and nulls that the table accepts in these columns, if it exists and has them; asked before landing
        adds columns that records bring. Default: none, so records decide the type and `prepare` checks it."""
        del names
        return {}

    @abstractmethod
    def merge(
        self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]
    ) -> Merged | None:
        """Applies these batches, which continue `committed`, in one atomic step with the state after the last.

        A batch that `revises` others comes alone. It is applied as `replay` applies landed batches: for all keys that
        its records name, the newest landed change counts, and an append table gets the rows that it lacks.

        Returns:
            None if the table's own triggers (interval, record count) say that it is too early.

        Raises:
            CommitFailed: the table is no longer at `committed`; the caller plans again from the new state.
            CommitStateUnknown: the commit's response was lost; the caller reads the state and plans again.
        """

    @abstractmethod
    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        """Merges landed batches again, none newer than `committed`; the state does not move.

        For the keys that those batches touched, the newest landed change up to the committed batch is applied; an
        append table gets the rows that it lacks. So a replay does not change a table that is correct.

        Raises:
            CommitFailed, CommitStateUnknown: as in `merge`.
        """

    def check_replay(self) -> None:  # noqa: B027  # most kinds have nothing to check
        """Checks, before anything is done, that a replay can distinguish the table's rows.

        Raises:
            ConfigurationError: it cannot.
        """

    @abstractmethod
    def drop_state(self) -> bool:
        """Removes the committed state of a table that was dropped, so that it is filled again; False: there is none.

        An earlier run that wakes up must not be able to commit on the removed state.

        Raises:
            ConfigurationError: the table still has rows, or contains its own state.
        """

    @abstractmethod
    def hand_over(self, to: str, at: CommittedState | None) -> bool:
        """Hands the table with its rows over to another pipeline, as a table without a batch; False: it has no state.

        Afterwards this pipeline's commits are refused, also those of a run that wakes up (`jobs.resets.take_over`).

        Args:
            at: the state from which the other pipeline continues; None: it begins at its start.

        Raises:
            ConfigurationError: a batch is half done, or rows could no longer be distinguished.
            CommitFailed: the table is at another state.
        """

    @abstractmethod
    def drop(self) -> bool:
        """Drops the table and what belongs to it, but not a state outside the table; False: there was no table."""

    @abstractmethod
    def read(self, session: Callable[[], SparkSession]) -> TableReader:
        """The table's rows, for `verify` and checks.

        Args:
            session: opens a session with `spark_settings`; most kinds use their system's own client instead.
        """

    # Features that a system may lack.

    def spark_settings(self) -> Mapping[str, str]:
        """Settings of a Spark session that can access the table; none if Spark never does."""
        return {}

    def touched_duplicates(self, context: MergeContext, batches: Sequence[LandedBatch]) -> int:
        """The number of keys with more than one row among those that these batches touched (`counts_keys_at_merge`)."""
        del context, batches
        return 0

    def commit_reference(self, batch_number: int) -> str | None:
        """The commit that added a batch to the table; None if the system does not remember it."""
        del batch_number
        return None

    def dataset(self) -> tuple[str, str]:
        """The table's namespace and name for lineage tools; by OpenLineage's naming, if it knows the system."""
        return f"{self.table.kind}://{self.table.connection}", self.table.table

    def maintain(self, session: Callable[[], SparkSession]) -> Iterator[Done]:
        """Maintenance by `spec.maintenance`, task by task (`jobs.maintenance.report.do`); none before the first batch.

        Args:
            session: opens the Spark session of the table's maintenance, for kinds that need one.
        """
        del session
        return iter(())

    def side_tables(self) -> Sequence[SideTable]:
        """The tables of refused landed rows (`Capabilities.refuses`): one per endpoint with such rows."""
        return ()

    def dead_letters(
        self, most: int, values: bool = False, batches: tuple[int, int] | None = None
    ) -> Iterator[DeadLetter]:
        """At most `most` of the landed rows that the system refused.

        Args:
            values: with the rows' values.
            batches: only those of batches from the first to the second number, both included.
        """
        return chain.from_iterable(side.dead_letters(most, values, batches) for side in self.side_tables())

    def dead_letter_groups(self) -> Iterator[DeadLetterGroup]:
        """The landed rows that the system refused, grouped and counted by their problem."""
        return chain.from_iterable(side.groups() for side in self.side_tables())

    def refused(self) -> Mapping[int, int]:
        """The number of landed rows that the system refused, by batch: those of `dead_letters`."""
        return sum((Counter(side.by_batch()) for side in self.side_tables()), Counter[int]())

    def refused_places(self, session: Callable[[], SparkSession]) -> DataFrame | None:
        """``topic, partition, offset, batch`` of the refused rows; None if there are none."""
        from jobs.destinations.shares import rows_of
        from jobs.destinations.side_table import PLACES

        sides = [side for side in self.side_tables() if side.by_batch()]
        return rows_of(session(), [side.places for side in sides], PLACES) if sides else None

    def leases(self) -> list[LeaseState]:
        """The run that holds the table and its batch, for each endpoint that a run has written (`Capabilities.leases`).

        Changes nothing. A sensor shows progress by it, and starts a run if a dead one has left a batch half done.
        """
        return []

    def transaction(self) -> Transaction:
        """Begins a commit of several tables of this connection; their `MergeContext`s get it (`commits_together`).

        Raises:
            ConfigurationError: the connection's system cannot commit several tables at once.
        """
        raise NotImplementedError(f"{self.table.kind} does not commit tables together")

"""What the engine asks of each destination table, of whatever kind (`jobs.destinations.kind`).

What is landed reaches a merge in one of two ways:

- `jobs.changes.reduction.Reduction.of_table` gives Spark SQL (`landed`, `of`, bound to `parameters`) of the changes
  that the table takes: filtered by its mode and routes, the last one of each key. `MergeContext.spark` runs it.
- `jobs.changes.files.LandedFiles` gives landed rows as Arrow, straight from their files, without Spark.

Three rules decide whether a table is right, however the log was cut into batches:

- The mode's filter comes before the reduction to one change per key: `append` and `upsert` leave deletes out first.
- Where `spec.changes.ordered_by` names a column, a change whose value is smaller than the stored one is dropped, and a
  delete keeps its value, so that an older change cannot bring the row back. Else the order is batch, then ``i``.
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
    """Whether a part of a table with these states has not committed this batch, which is the newest."""
    return any(state is None or state.commit_id != commit_id for state in states)


def oldest(states: Sequence[CommittedState | None]) -> CommittedState | None:
    """What a table whose parts have these states has as a whole; None where one of them has none."""
    there = [state for state in states if state]
    return min(there, key=lambda state: state.batch_number) if len(there) == len(states) else None


@dataclass(frozen=True)
class Destination(ABC):
    """A destination table with its committed state.

    `merge` must be atomic with the state: after a crash at any moment either all of it holds or the next `merge` of
    the same batches brings the same table. It must be refused (`CommitFailed`) where the table's committed state is
    no longer `committed`, be it that another run was faster or that this one slept: a compare-and-set inside the
    commit, never a look before it.

    Errors are those of `resources.errors`: what may pass is a `TransientError`, what a person has to fix a
    `TerminalError` that names where and the remedy.

    Attributes:
        pipeline: the pipeline's name; no other one may write the table (`jobs.only_writer`).
        table: its entry in the pipeline file.
    """

    pipeline: str
    spec: PipelineSpec
    table: Table

    @property
    def name(self) -> str:
        """As people read it (`Table.title`)."""
        return self.table.title

    @cached_property
    def row_columns(self) -> list[RowColumn]:
        """The columns of the table's rows, under the names that they have there (`Kind.columns`)."""
        return kind_of(self.table).columns(self.spec, self.table)

    @property
    def kept_deletes(self) -> str | None:
        """The table of the order values of deletes, where the destination's table has no place for them."""
        return kind_of(self.table).kept_deletes(self.spec, self.table)

    # The protocol.

    @abstractmethod
    def committed(self) -> CommittedState | None:
        """The state that the table itself carries; None before its first batch.

        Raises:
            TableReplaced: dropped and recreated, or rolled back under `on_rollback: hold`.
        """

    def parts(self) -> Sequence[Destination]:
        """The endpoints that rows are spread over, each with a committed state of its own; otherwise the table itself.
        `committed` is the oldest of these states."""
        return [self]

    def states(self) -> list[CommittedState | None]:
        """The committed state of each part. It is None for a part that does not answer; a merge reports the problem."""
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
        """Whether any part has not committed this batch, which is the newest."""
        return lack(self.states(), commit_id)

    def settle(self) -> None:  # noqa: B027  # nothing is left open where data and state move together
        """Completes the committed state of a run that died between its commit and its note of it.

        Called before an offset reset, when the landed batches that show the commit may be gone.
        """

    @abstractmethod
    def prepare(self, dry_run: bool = False) -> list[str]:
        """Creates the table or evolves its schema; with `dry_run` only says what it would do.

        Raises:
            SchemaRefused, ConfigurationError: before anything is written; also where another pipeline writes the table
                (`jobs.only_writer`).
        """

    def takes(self, names: Collection[str]) -> Mapping[str, Takes]:
        """What the table takes in these columns of a row, where it is there and has them; asked when records bring
        columns. Left as it is: whatever the records bring, if `prepare` finds that it fits."""
        del names
        return {}

    @abstractmethod
    def merge(
        self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]
    ) -> Merged | None:
        """Applies these batches, which continue `committed`, in one atomic step with the state after the last.

        A batch that `revises` others comes alone. It is applied as `replay` applies landed batches: for all keys that
        its records name, the newest landed change counts, and an append table gets the rows that it lacks.

        None where the table's own triggers (interval, record count) say that it is too early.

        Raises:
            CommitFailed: the table is not at `committed` any more; the caller plans again from the new state.
            CommitStateUnknown: the answer to the commit was lost; the caller looks and plans again.
        """

    @abstractmethod
    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        """Merges landed batches again, none newer than `committed`; the state does not move.

        For the keys that those batches touched, the newest landed change up to the committed batch is applied; an
        append table gets the rows that it lacks. So any replay leaves the table as if it had never happened.

        Raises:
            CommitFailed, CommitStateUnknown: as in `merge`; a replay is a writer like all others.
        """

    def check_replay(self) -> None:  # noqa: B027  # nothing to check is the usual case
        """Checks before anything is done that a replay will be able to distinguish the table's rows.

        Raises:
            ConfigurationError: it will not.
        """

    @abstractmethod
    def drop_state(self) -> bool:
        """Forgets the committed state of a table that was dropped, so that it is filled again; False: there is none.

        A run of before, which may only sleep, must not be able to commit on the forgotten state.

        Raises:
            ConfigurationError: the table still has rows, or is its own state.
        """

    @abstractmethod
    def hand_over(self, to: str, at: CommittedState | None) -> bool:
        """Gives the table with its rows to another pipeline, as one without a batch; False: there is no state.

        From then on this pipeline is refused, a run of it too that only sleeps (`jobs.take_over`).

        Args:
            at: the state that the other pipeline goes on from; None: it begins at its start.

        Raises:
            ConfigurationError: a batch is half done, or rows could not be distinguished any more.
            CommitFailed: the table is at another state.
        """

    @abstractmethod
    def drop(self) -> bool:
        """Drops the table and what belongs to it, but not a state that is kept beside it; False: there was none."""

    @abstractmethod
    def read(self, spark: SparkSession) -> TableReader:
        """The table's rows, for `verify` and checks.

        Args:
            spark: a session that has `spark_settings`; most kinds ask their system by its own client.
        """

    # Features that a system may lack.

    def spark_settings(self) -> Mapping[str, str]:
        """Settings of a Spark session that reaches the table; none where Spark never does."""
        return {}

    def touched_duplicates(self, context: MergeContext, batches: Sequence[LandedBatch]) -> int:
        """How many of the keys that these batches touched have more than one row (`counts_keys_at_merge`)."""
        del context, batches
        return 0

    def commit_reference(self, batch_number: int) -> str | None:
        """The commit that brought a batch into the table; None where the system does not remember it."""
        del batch_number
        return None

    def dataset(self) -> tuple[str, str]:
        """Namespace and name of the table for lineage tools; by OpenLineage's naming, where it knows the system."""
        return f"{self.table.kind}://{self.table.connection}", self.table.table

    def maintain(self, session: Callable[[], SparkSession]) -> Iterator[Done]:
        """Upkeep by `spec.maintenance`, task by task (`jobs.maintenance.report.do`); nothing before the first batch.

        Args:
            session: opens the Spark session of the table's maintenance, for kinds that need one.
        """
        del session
        return iter(())

    def side_tables(self) -> Sequence[SideTable]:
        """Where the landed rows are kept that the system refuses (`refuses`): one per endpoint that has some."""
        return ()

    def dead_letters(
        self, most: int, values: bool = False, batches: tuple[int, int] | None = None
    ) -> Iterator[DeadLetter]:
        """At most so many of the landed rows that the system refused; with their values where asked for.

        Args:
            batches: only those of the first to the second of these, both included.
        """
        return chain.from_iterable(side.dead_letters(most, values, batches) for side in self.side_tables())

    def dead_letter_groups(self) -> Iterator[DeadLetterGroup]:
        """The landed rows that the system refused, counted by what is wrong with them."""
        return chain.from_iterable(side.groups() for side in self.side_tables())

    def refused(self) -> Mapping[int, int]:
        """How many landed rows the system refuses, by batch; the dead letters above are theirs."""
        return sum((Counter(side.by_batch()) for side in self.side_tables()), Counter[int]())

    def refused_places(self, spark: SparkSession) -> DataFrame | None:
        """``topic, partition, offset, batch`` of the rows that are refused; None where none is."""
        from jobs.destinations.shares import rows_of
        from jobs.destinations.side_table import PLACES

        sides = [side for side in self.side_tables() if side.by_batch()]
        return rows_of(spark, [side.places for side in sides], PLACES) if sides else None

    def leases(self) -> list[LeaseState]:
        """Who holds the table and which batch is under way, one per endpoint that has had a run (`leases`).

        Read only. By it a sensor shows progress, and starts a run where a dead one has left a batch half done.
        """
        return []

    def transaction(self) -> Transaction:
        """Begins a commit of several tables of this connection; goes into each `MergeContext` (`commits_together`).

        Raises:
            ConfigurationError: the connection's system cannot.
        """
        raise NotImplementedError(f"{self.table.kind} does not commit tables together")

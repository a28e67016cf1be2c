"""What the protocol asks of a destination table, whatever system it is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import SparkSession

from jobs.batch import CommittedState, LandedBatch, MergeCounts
from jobs.changes.columns import RowColumn, row_columns
from jobs.iceberg.attempt import Publish
from jobs.landing.landing_table import LandedRows
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table


@dataclass(frozen=True)
class Merged:
    """What a merge or a replay did.

    Attributes:
        reference: what the system calls the commit (snapshot id, job id, query id).
        seconds: per stage.
    """

    counts: MergeCounts
    reference: str
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MergeContext:
    """What a destination needs to do its part, beside its own connection.

    Attributes:
        pipeline: the pipeline's name.
        run_id: who does it; goes into summaries, labels and comments.
        publish: takes the commit of an Iceberg table, to make it together with others; None: each on its own.
    """

    pipeline: str
    spec: PipelineSpec
    spark: SparkSession
    intermediate: LandedRows
    run_id: str
    publish: Publish | None = None

    def columns(self, metadata: Sequence[str]) -> list[RowColumn]:
        return row_columns(self.spec, list(metadata))


class Destination(Protocol):
    """A destination table with its committed state.

    `merge` must be atomic with the state: after a crash at any moment either all of it holds or the next `merge` of
    the same batches brings the same table. It must be refused (`CommitFailed`) where the table's committed state is
    no longer `committed`, be it that another run was faster or that this one slept.
    """

    @property
    def table(self) -> Table:
        """Its entry in the pipeline file."""

    @property
    def name(self) -> str:
        """Kind and table, as people read it: ``iceberg air.flights``."""

    def committed(self) -> CommittedState | None:
        """The state that the table itself carries; None before its first batch.

        Raises:
            TableReplaced: dropped and recreated, or rolled back under `on_rollback: hold`.
        """

    def forget(self) -> bool:
        """Forgets the committed state of a table that was dropped, so that it is filled anew; False: there is none.

        Raises:
            ConfigurationError: the table still has rows, or is its own state.
        """

    def prepare(self, dry_run: bool = False) -> list[str]:
        """Creates the table or evolves its schema; with `dry_run` only says what it would do.

        Raises:
            SchemaRefused, ConfigurationError: before anything is written.
        """

    def merge(
        self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]
    ) -> Merged | None:
        """Applies these batches, which continue `committed`, in one atomic step with the state after the last.

        None where the table's own triggers (interval, record count) say that it is too early.
        """

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        """Merges landed batches again, none newer than `committed`; the state does not move.

        For the keys that those batches touched, the newest landed change up to the committed batch is applied; an
        append table gets the rows that it lacks. So any replay leaves the table as if it had never happened.
        """

"""What a merge or a replay of a destination table is given, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.batch import MergeCounts
    from jobs.changes.landed_rows import LandedRows
    from jobs.spark_tasks import OneTask
    from jobs.spec.pipeline import PipelineSpec


@dataclass(frozen=True)
class Merged:
    """What a merge or a replay did.

    Attributes:
        reference: what the system calls the commit (snapshot id, job id, query id).
        seconds: per stage.
        duplicates: keys of which the merge has found more than one row; None: it did not count them.
    """

    counts: MergeCounts
    reference: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    duplicates: int | None = None


class Transaction(Protocol):
    """The commits of several tables on their way to becoming one."""

    def commit(self) -> None:
        """Makes all that was written under it visible at once; nothing where nothing was written.

        Raises:
            CommitFailed: one of the tables has moved on. CommitStateUnknown: look before you try again.
        """


@dataclass(frozen=True)
class MergeContext:
    """What a destination needs to do its part, beside its own connection.

    Attributes:
        pipeline: the pipeline's name.
        session: opens `spark`, where that is not done yet.
        intermediate: landed batches and their rows.
        run_id: who does it; goes into summaries, labels and comments.
        one_task: does what takes one task of Spark; where many tables are merged side by side, in a job for all.
        transaction: from `Destination.transaction`; takes the commit, to make it with others. None: commit at once.
        due: whatever the table's own triggers say: a batch that revises these follows.
    """

    pipeline: str
    spec: PipelineSpec
    session: Callable[[], SparkSession]
    intermediate: LandedRows
    run_id: str
    one_task: OneTask
    transaction: Transaction | None = None
    due: bool = False

    @property
    def spark(self) -> SparkSession:
        """A session that is this table's alone now, and knows the intermediate table's catalog.

        It may be another one after `one_task`.
        """
        return self.session()

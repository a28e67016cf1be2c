"""The context and the result of a merge or a replay of a destination table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.batch import MergeCounts
    from jobs.changes.landed_rows import LandedRows
    from jobs.spark.spark_tasks import OneTask
    from jobs.spec.pipeline import PipelineSpec


@dataclass(frozen=True)
class Merged:
    """What a merge or a replay did.

    Attributes:
        reference: the system's id of the commit (snapshot id, job id, query id).
        seconds: per stage.
        duplicates: the number of keys of which the merge found more than one row; None: it did not count them.
    """

    counts: MergeCounts
    reference: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    duplicates: int | None = None


class Transaction(Protocol):
    """Collects the commits of several tables, to make them at once."""

    def commit(self) -> None:
        """Makes everything visible at once that was written in this transaction; does nothing if nothing was.

        Raises:
            CommitFailed: the state of one of the tables has changed.
            CommitStateUnknown: read the states before you try again.
        """


@dataclass(frozen=True)
class MergeContext:
    """What a destination needs for a merge besides its own connection.

    Attributes:
        pipeline: the pipeline's name.
        session: opens `spark`, if it is not open yet.
        intermediate: landed batches and their rows.
        run_id: the run's id, for summaries, labels and comments.
        one_task: runs work that needs a single Spark task; if many tables are merged side by side, in one job for all.
        transaction: from `Destination.transaction`; makes the commit together with others. None: commit at once.
        due: merge now, whatever the table's own triggers say, because a batch that revises these follows.
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
        """A session that only this table uses now, and that has the intermediate table's catalog.

        It may be another one after `one_task`.
        """
        return self.session()

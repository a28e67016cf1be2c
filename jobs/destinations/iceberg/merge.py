"""The changes of a range of landed batches, reduced by Spark SQL, and written to a table.

Where they are few, tasks read, reduce and write them without Spark SQL; otherwise Spark caches the reduced changes
(`cached_changes`).

The mode's filter comes before the reduction to one change per key, so that the result does not depend on where the
log was cut into batches (`docs/internals.md`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.changes.few_changes_task import FewChangesTask
from jobs.changes.key_shares_task import write_in_shares
from jobs.changes.last_changes import LastChanges
from jobs.changes.reduction import Reduction
from jobs.destinations.iceberg.cached_changes import CachedChanges, writing_task
from jobs.destinations.iceberg.kept_deletes import KeptDeletes
from jobs.iceberg import spark_writes
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.nested_fields import type_at
from jobs.iceberg.row_delta import RowDelta
from jobs.iceberg.row_delta_task import RowDeltaReport
from jobs.lineage import bound_topics
from jobs.spark.own_views import cached, own_views
from jobs.spark.spark_tasks import OneTask, numbered, task_reports
from resources.errors import BatchmergeError, CommitFailed, Interrupted, Unavailable
from resources.spark_errors import spark_errors
from sql import render

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class WantedChanges:
    """The landed changes that one destination table has to get; they are not reduced yet.

    Attributes:
        wanted: which changes, and how they are reduced.
        kept_deletes: the table that remembers the order of deletes; None without `order_by`.
        null_safe: null equals null in a key.
        landed_schema: gives the schema of the landed rows.
        one_task: runs merges that need a single Spark task.
        leaves_unchanged: changes may leave columns as they were.
        truncated_below: delete rows of a smaller order; None: there are none.
        few: gives the same changes, if they are so few and plain that tasks can read and apply them themselves.
        recreated: only rows that the table lacks, for replay of tables without a unique key; these are the topics that
            were recreated since it has rows (`jobs.lineage.recreated_topics`). None: all rows.
    """

    session: Callable[[], SparkSession]
    wanted: Reduction
    kept_deletes: KeptDeletes | None
    null_safe: bool
    landed_schema: Callable[[], pa.Schema]
    one_task: OneTask
    leaves_unchanged: bool
    truncated_below: int | None
    few: Callable[[], LastChanges | None]
    recreated: Mapping[str, Sequence[int]] | None

    @property
    def only_missing(self) -> bool:
        """Whether only rows are added that the table lacks."""
        return self.recreated is not None

    @property
    def spark(self) -> SparkSession:
        return self.session()

    def append_to(self, attempt: Attempt) -> int:
        """Appends every change that the table takes, as it was landed; returns how many rows there were."""
        self.one_task.is_not_enough()
        names = [c.name for c in self.wanted.columns]
        rows = spark_writes.with_all_columns(self._rows(attempt), names, attempt.schema)
        spark_writes.append(rows, attempt.path, attempt.summary, attempt.has_uuid_partitions)
        return attempt.added_rows()

    @contextmanager
    def cached(self, target: Attempt | RowDelta) -> Iterator[CachedChanges]:
        """Reduces the changes once, in views of their own: a run that sleeps finds them again when it wakes up."""
        self.one_task.is_not_enough()
        with own_views(self.spark, "changes", "found") as (view, found):
            cached(self._rows(target), view)
            yield CachedChanges(
                self.session,
                self._reduction,
                view,
                found,
                self.kept_deletes,
                self.null_safe,
                names_rows=self.only_missing and self.wanted.mode == "delete",
                truncated_below=self.truncated_below,
            )

    def write_to(self, delta: RowDelta) -> RowDeltaReport:
        """Has Spark's tasks write the reduced changes, and the positions of the rows that they replace."""
        report = self._written_by_few(delta)
        if report is None:
            with self.cached(delta) as changes:
                report = changes.write_to(delta)
        delta.add(report.files)
        delta.remove(report.deletes)
        self._fold(delta)
        return report

    def _written_by_few(self, delta: RowDelta) -> RowDeltaReport | None:
        """Written by tasks that reduce the changes themselves; None if only Spark SQL can."""
        changes = self.few()
        search = delta.search_by(self.wanted.keys) if changes else None
        if changes is None or search is None:
            return None
        task = FewChangesTask(changes, self.wanted.keys, self.null_safe, search, writing_task(delta))
        if changes.shares == 1:
            reports = self.one_task(self.session, task)
            return sum(reports, RowDeltaReport()) if reports else None
        if task.scans_too_much:
            return None
        self.one_task.is_not_enough()
        return write_in_shares(self.spark, task)

    def _fold(self, delta: RowDelta) -> None:
        """Folds data files. If that fails, they wait for maintenance, and not the changes for them."""
        task, where = delta.fold_task(), delta.files.where
        if task is None:
            return
        try:
            with spark_errors(where):
                reports = task_reports(numbered(self.spark, len(task.groups)), task)
        except (CommitFailed, Interrupted, Unavailable):
            raise
        except BatchmergeError as problem:
            _LOG.warning("%s: small or worn data files were not rewritten: %s", where, problem)
        else:
            delta.fold(task, sum(reports, RowDeltaReport()).files)

    def _rows(self, target: Attempt | RowDelta) -> DataFrame:
        """The rows to apply, with the nested fields of the target's columns."""
        text, given = self._text(target.path), dict[str, pa.DataType]()
        rows = self.spark.sql(text, args={**self._reduction.parameters, **bound_topics(self.recreated or {})})
        nested = [c for c in self.wanted.columns if pa.types.is_nested(c.type)]
        if nested:
            landed = self.landed_schema()
            given = {c.name: kind for c in nested if (kind := type_at(landed, c.path))}
        return spark_writes.with_nested_fields(rows, given, target.schema)

    def _text(self, target: tuple[str, ...] | None) -> str:
        """The SQL of the rows to apply, built up from filter, reduction, order and (replay) what is missing."""
        text = self._reduction.of(self._reduction.landed)
        if self.kept_deletes:
            text = render(
                "spark",
                "without_deleted_later",
                rows=text,
                kept_deletes=self.kept_deletes.path,
                keys=self.wanted.keys,
                null_safe=self.null_safe,
            )
        if self.recreated is not None:
            text = render(
                "spark",
                "missing_rows",
                rows=text,
                target=target,
                mode=self.wanted.mode,
                recreated=list(self.recreated.values()),
                columns=[c.name for c in self.wanted.columns],
                keys=self.wanted.keys,
                null_safe=self.null_safe,
                order_by=self.wanted.order_by,
            )
        return text

    @cached_property
    def _reduction(self) -> Reduction:
        if not self.leaves_unchanged:
            return self.wanted
        return self.wanted.with_unchanged(self.spark)

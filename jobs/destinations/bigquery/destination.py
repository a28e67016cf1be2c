"""A destination table in BigQuery: a job per merge (`merge`), a row of state per table (`state`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.bigquery.layout_differences import layout_differences
from jobs.destinations.bigquery.limits import limited_columns
from jobs.destinations.bigquery.maintain import remove_merged
from jobs.destinations.bigquery.merge import merge, settle
from jobs.destinations.bigquery.prepare import prepare
from jobs.destinations.bigquery.read import BigQueryReader, BigQueryValues
from jobs.destinations.bigquery.replay import replay
from jobs.destinations.bigquery.schema import taken
from jobs.destinations.bigquery.state import StateRow
from jobs.destinations.bigquery.work import TableWork
from jobs.destinations.merge_context import MergeContext, Merged
from jobs.destinations.requirements import require_batch_column, require_empty, require_planned
from jobs.destinations.side_table import SideTable
from jobs.destinations.takes import Takes
from jobs.failpoints import failpoint
from jobs.maintenance.report import Done, do
from resources.errors import CommitFailed, ConfigurationError


@dataclass(frozen=True)
class BigQueryDestination(TableWork):
    """`kind: bigquery` of a pipeline file."""

    def committed(self) -> CommittedState | None:
        row = self.state.read()
        if row is None:
            return None
        self.check_identity(row, self.bigquery.find_table(self.table.table))
        return row.committed

    def settle(self) -> None:
        settle(self)

    def prepare(self, dry_run: bool = False) -> list[str]:
        return prepare(self, dry_run)

    def layout_differences(self) -> list[str]:
        return list(layout_differences(self.table, lambda: self.bigquery.find_table(self.table.table)))

    def takes(self, names: Collection[str]) -> Mapping[str, Takes]:
        found = self.bigquery.find_table(self.table.table)
        return taken(found.schema if found else (), names, self.table)

    def merge(
        self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]
    ) -> Merged | None:
        return merge(self, context, committed, batches)

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        return replay(self, context, committed, batches)

    def dataset(self) -> tuple[str, str]:
        return "bigquery", f"{self.connection.project}.{self.table.table}"

    def check_replay(self) -> None:
        row = self.state.read()
        if row is not None and not self.table.has_unique_key:
            require_batch_column(row.recreated, self.table, self.name)

    def drop_state(self) -> bool:
        # Of a run that died before it moved the row.
        self.settle()
        row = self.state.read()
        if row is None:
            return False
        present = self.bigquery.find_table(self.table.table) is not None
        require_empty(self.count_rows() if present else None, self.name)
        self._stop_merges(row)
        self.state.forget(row)
        return True

    def hand_over(self, to: str, at: CommittedState | None) -> bool:
        row = self.state.read()
        if row is None:
            return False
        require_planned(row.committed, at, self.name)
        if row.recreated and not self.table.has_unique_key:
            raise ConfigurationError(
                f"only the state of pipeline {self.pipeline} says that {', '.join(row.recreated)} was recreated",
                where=self.name,
                remedy="keep the pipeline's name, or begin a new table",
            )
        self._stop_merges(row)
        failpoint("take-over.given")
        self.state.hand_over(row, to)
        return True

    def _stop_merges(self, row: StateRow) -> None:
        """Deletes the staging table, so that no merge of a sleeping run can take effect any more.

        Raises:
            CommitFailed: one had begun before, and has taken effect.
        """
        self.bigquery.delete_table(row.staging_table)
        if self.attempts_on(row).closed() is not None:
            raise CommitFailed("a run has merged at this very moment", where=self.name, remedy="try again")

    def drop(self) -> bool:
        found = self.bigquery.find_table(self.table.table) is not None
        self.bigquery.delete_table(self.table.table)
        self.side_table.drop()
        return found

    def read(self, session: Callable[[], SparkSession]) -> BigQueryReader:
        del session
        found = self.bigquery.find_table(self.table.table)
        limited = limited_columns(self.spec, self.table, self.columns, found.schema if found else ())
        named = [column.name for column in self.columns if column.conversion]
        options = named, limited, self.table.out_of_range
        values = BigQueryValues(self.row_columns, *options, bigquery=self.bigquery, table=self.table, own=self.columns)
        return BigQueryReader(values, self.pipeline, found)

    def side_tables(self) -> Sequence[SideTable]:
        return [self.side_table]

    def maintain(self, session: Callable[[], SparkSession]) -> Iterator[Done]:
        del session
        if self.committed() is not None and self.spec.maintenance.clean_up.enabled:
            yield do("clean_up", self.name, self._clean_up)

    def _clean_up(self) -> Mapping[str, int]:
        """Cleans up as every merge does at its end, for a table with rare merges or with a merge that failed there."""
        row = self.state.read()
        if row is None or row.committed is None or self.bigquery.find_table(row.staging_table) is None:
            return {}
        return {"staging tables dropped": remove_merged(self, row, row.committed.batch_number)}

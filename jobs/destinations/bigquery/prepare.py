"""Getting a destination table ready: dataset, tables, state row, and what changed in their schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from google.cloud import bigquery

from jobs.destinations.bigquery.field import Field
from jobs.destinations.bigquery.flush import applies
from jobs.destinations.bigquery.job_sequence import JobSequence
from jobs.destinations.bigquery.names import load_prefix
from jobs.destinations.bigquery.read import count_rows
from jobs.destinations.bigquery.schema import can_follow, placed
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.state import StateRow, identity
from jobs.destinations.bigquery.tables import (
    destination_table,
    evolve,
    knowing_pipeline,
    knows_pipeline,
    new_staging_table,
)
from jobs.destinations.bigquery.work import Work
from jobs.destinations.requirements import require_create, require_known_rows, require_same_table
from jobs.spec.tables import Evolution
from resources.errors import CommitFailed, TableReplaced

_BRING_BACK = "bring the row back (BigQuery keeps deleted rows for a week: `FOR SYSTEM_TIME AS OF`)"


def check_identity(
    row: StateRow, present: bigquery.Table | None, table: BigQueryTable, where: str, rows: Callable[[], int]
) -> None:
    if row.committed:
        found = identity(present) if present else None
        require_same_table(row.committed, row.table_created, found, table, where, rows, table.on_replaced)


@dataclass(frozen=True)
class Preparation(Work):
    """Makes everything that a merge needs, or brings it up to date. Safe to run at any time, by many at once."""

    def run(self, dry_run: bool) -> list[str]:
        """What was done, or with `dry_run` would be done, for people.

        Raises:
            SchemaRefused, ConfigurationError, TableReplaced, InvariantBroken: before anything is written.
        """
        row = self.state.read()
        found = self.bigquery.find_table(self.table.table)
        if row is None:
            self.state.require_only_writer()
        if row is not None:
            check_identity(row, found, self.table, self.where, self._count)
        elif found is not None and knows_pipeline(found, self.pipeline):
            require_known_rows(self._count(), self.table, self.where, _BRING_BACK)
        done = self._destination(found is not None, dry_run)
        if dry_run:
            return [*done, *self._planned(row, placed(self.staged, found.schema if found else ()))]
        found = found or self.bigquery.find_table(self.table.table)
        if found is None:
            raise TableReplaced("the table was dropped meanwhile", where=self.where, remedy="run again")
        if row is None:
            row = self.state.create(identity(found), self.table.time_limit_seconds)
        elif row.table_created != identity(found):
            row = self._renewed(row, identity(found))
        if not knows_pipeline(found, self.pipeline):
            # Written before the first row: a table with this mark and without a state row has lost that row.
            self.bigquery.update_table(*knowing_pipeline(found, self.pipeline))
        return [*done, *self._staging_table(row, placed(self.staged, found.schema))]

    def _renewed(self, row: StateRow, table_created: str) -> StateRow:
        """The row of a restored table: a merge that has taken effect in it is adopted first, and one that starts later
        fails without the staging table."""
        if row.committed:
            self.bigquery.delete_table(row.staging_table)
        if not row.committed or self.attempts_on(row).closed(applies) is None:
            self.state.renew(row, table_created)
        return self._present_row()

    def _count(self) -> int:
        return count_rows(self.bigquery, self.table, self.columns)

    def _destination(self, exists: bool, dry_run: bool) -> list[str]:
        wanted = [c.field for c in self.columns]
        evolved = partial(evolve, self.bigquery, self.table.table, wanted, self.table.evolve, compared=self._compared)
        if exists:
            changes = evolved(dry_run=dry_run)
            return [f"{self.where}: {change}" for change in changes]
        require_create(self.table, self.where)
        if not dry_run:
            self.bigquery.create_dataset(self.table.table.split(".")[0])
            table_id = self.bigquery.table_id(self.table.table)
            self.bigquery.create_table(destination_table(table_id, self.table, self.columns))
            # Somebody else may have created it at the same moment: it must fit.
            evolved()
        return [f"create {self.where}{self._layout()}"]

    @property
    def _compared(self) -> list[str]:
        """The columns by which merges compare rows."""
        if self.table.mode == "append":
            return []
        return [c.name for c in self.columns if c.is_key or c == self._order]

    def _layout(self) -> str:
        table = self.table
        by = f" partitioned by {table.time_partitioning}" if table.time_partitioning else ""
        of = f" of {table.partition_column}" if table.partition_column else ""
        clustered = f" clustered by {', '.join(table.cluster_by)}" if table.cluster_by else ""
        return by + of + clustered

    def _planned(self, row: StateRow | None, staged: Sequence[Field]) -> list[str]:
        present = self.bigquery.find_table(row.staging_table) if row else None
        if row is None or present is None or not can_follow(row.staging_table, present.schema, staged):
            return [f"create a staging table for {self.where}"]
        changes = evolve(self.bigquery, row.staging_table, staged, Evolution(), dry_run=True)
        return [f"{row.staging_table}: {change}" for change in changes]

    def _staging_table(self, row: StateRow, staged: Sequence[Field]) -> list[str]:
        present = self.bigquery.find_table(row.staging_table)
        if present is not None and can_follow(row.staging_table, present.schema, staged):
            # Versions of before left the expiry of partitions, which takes kept deletes away.
            self.bigquery.lasting(present)
            changes = evolve(self.bigquery, row.staging_table, staged, Evolution())
            return [f"{row.staging_table}: {change}" for change in changes]
        # Its rows are all landed, so a staging table that cannot be changed is replaced like one that was lost.
        self.bigquery.delete_table(row.staging_table)
        row = self._replace_lost(row)
        table_id = self.bigquery.table_id(row.staging_table)
        lacks_deletes = self.keeps_deletes and row.committed is not None
        wanted = new_staging_table(table_id, self.pipeline, self.table.table, staged, lacks_deletes)
        self.bigquery.create_lasting_table(wanted)
        return [f"create {row.staging_table}"]

    def _replace_lost(self, row: StateRow) -> StateRow:
        """Gives a lost staging table another name, since loads into the lost one count as done.

        A merge that was submitted before is waited for, and if it took effect, `merge` adopts it. One that starts later
        fails because its table is gone. So a new generation can start from the same state.
        """
        if not self._was_used(row):
            return row
        if self.attempts_on(row).closed(applies) is None:
            self.state.renew(row, row.table_created)
        return self._present_row()

    def _was_used(self, row: StateRow) -> bool:
        prefix = load_prefix(self.pipeline, self.table.table, row.generation, row.next_batch)
        loads = JobSequence(self.bigquery, prefix, self.table.time_limit_seconds)
        return row.committed is not None or loads.newest()[0] > 0 or self.attempts_on(row).newest()[0] > 0

    def _present_row(self) -> StateRow:
        row = self.state.read()
        if row is None:
            raise CommitFailed("the table's row in `batchmerge_state` is gone", where=self.where, remedy="run again")
        return row

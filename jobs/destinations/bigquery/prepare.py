"""Getting a destination table ready: dataset, tables, state row, and what changed in their schemas."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from google.cloud.bigquery import Table

from jobs.destinations.bigquery.field import Field
from jobs.destinations.bigquery.schema import can_follow, placed
from jobs.destinations.bigquery.state import StateRow, identity
from jobs.destinations.bigquery.tables import destination_table, evolve, new_staging_table, state_label
from jobs.destinations.bigquery.work import TableWork
from jobs.destinations.requirements import NO_TABLE, require_create, require_known_rows
from jobs.spec.tables import Evolution
from resources.errors import CommitFailed, ConfigurationError, TableReplaced

_TAKES_NO_ROWS = ("VIEW", "MATERIALIZED_VIEW", "EXTERNAL", "SNAPSHOT")
_BRING_BACK = "bring the row back (BigQuery keeps deleted rows for a week: `FOR SYSTEM_TIME AS OF`)"


def prepare(work: TableWork, dry_run: bool) -> list[str]:
    """Makes all that a merge needs, or brings it up to date; safe at any time, by many at once.

    Returns:
        What was done, or with `dry_run` would be done, for people.

    Raises:
        SchemaRefused, ConfigurationError, TableReplaced, InvariantBroken: before anything is written.
    """
    row = work.state.read()
    found = work.bigquery.find_table(work.table.table)
    if found is not None and found.table_type in _TAKES_NO_ROWS:
        what = f"it is a {found.table_type.lower().replace('_', ' ')}, which takes no rows"
        raise ConfigurationError(what, where=work.name, remedy=NO_TABLE)
    if row is None:
        work.state.require_only_writer()
    if row is not None:
        work.check_identity(row, found)
    elif found is not None and state_label(work.pipeline) in found.labels:
        require_known_rows(work.count_rows(), work.table, work.name, _BRING_BACK)
    done = _destination(work, found, dry_run)
    if dry_run:
        return [*done, *_staging_table(work, row, placed(work.staged, found.schema if found else ()), dry_run=True)]
    found = found or work.bigquery.find_table(work.table.table)
    if found is None:
        raise TableReplaced("the table was dropped meanwhile", where=work.name, remedy="run again")
    if row is None:
        row = work.state.create(identity(found), work.table.time_limit_seconds)
    elif row.table_created != identity(found):
        row = _renewed(work, row, identity(found))
    if (mark := state_label(work.pipeline)) not in found.labels:
        # Written before the first row: a table with this mark and without a state row has lost that row.
        work.bigquery.add_labels(found, {mark: "1"})
    return [*done, *_staging_table(work, row, placed(work.staged, found.schema))]


def _renewed(work: TableWork, row: StateRow, table_created: str) -> StateRow:
    """The row of a restored table: a merge that has taken effect in it is adopted first, and one that starts later
    fails without the staging table."""
    if row.committed:
        work.bigquery.delete_table(row.staging_table)
    if not row.committed or work.attempts_on(row).closed() is None:
        work.state.renew(row, table_created)
    return _present_row(work)


def _destination(work: TableWork, found: Table | None, dry_run: bool) -> list[str]:
    wanted = [c.field for c in work.columns]
    compared, table = _compared(work), work.table
    evolved = partial(evolve, work.bigquery, table.table, wanted, table.evolve, compared=compared, present=found)
    if found is not None:
        changes = evolved(dry_run=dry_run)
        return [f"{work.name}: {change}" for change in changes]
    require_create(work.table, work.name)
    if not dry_run:
        work.bigquery.create_dataset(work.table.table.split(".")[0])
        table_id = work.bigquery.table_id(work.table.table)
        work.bigquery.create_table(destination_table(table_id, work.table, work.columns))
        # Somebody else may have created it at the same moment: it must fit.
        evolved()
    return [f"create {work.name}{_layout(work)}"]


def _compared(work: TableWork) -> list[str]:
    """The columns by which merges compare rows."""
    if work.table.mode == "append":
        return []
    return [c.name for c in work.columns if c.is_key or c == work.order]


def _layout(work: TableWork) -> str:
    table = work.table
    by = f" partitioned by {table.time_partitioning}" if table.time_partitioning else ""
    of = f" of {table.partition_column}" if table.partition_column else ""
    clustered = f" clustered by {', '.join(table.cluster_by)}" if table.cluster_by else ""
    return by + of + clustered


def _staging_table(work: TableWork, row: StateRow | None, staged: Sequence[Field], dry_run: bool = False) -> list[str]:
    present = work.bigquery.find_table(row.staging_table) if row else None
    if row and present and can_follow(row.staging_table, present.schema, staged):
        if not dry_run:
            # Older versions kept the dataset's partition expiry, by which remembered deletes would be lost.
            present = work.bigquery.lasting(present)
        changes = evolve(work.bigquery, row.staging_table, staged, Evolution(), dry_run, present=present)
        return [f"{row.staging_table}: {change}" for change in changes]
    if dry_run or row is None:
        return [f"create a staging table for {work.name}"]
    # Its rows are all landed, so a staging table that cannot be changed is replaced like one that was lost.
    work.bigquery.delete_table(row.staging_table)
    row = _replace_lost(work, row)
    table_id = work.bigquery.table_id(row.staging_table)
    lacks_deletes = work.keeps_deletes and row.committed is not None
    wanted = new_staging_table(table_id, work.pipeline, work.table.table, staged, lacks_deletes)
    work.bigquery.create_lasting_table(wanted)
    return [f"create {row.staging_table}"]


def _replace_lost(work: TableWork, row: StateRow) -> StateRow:
    """Gives a lost staging table another name, since loads into the lost one count as done.

    A merge that was submitted before is waited for, and if it took effect, `merge` adopts it. One that starts later
    fails because its table is gone. So a new generation can start from the same state.
    """
    if not _was_used(work, row):
        return row
    if work.attempts_on(row).closed() is None:
        work.state.renew(row, row.table_created)
    return _present_row(work)


def _was_used(work: TableWork, row: StateRow) -> bool:
    sequences = (work.loads_after, work.attempts_on)
    return row.committed is not None or any(attempts(row).newest()[0] > 0 for attempts in sequences)


def _present_row(work: TableWork) -> StateRow:
    row = work.state.read()
    if row is None:
        raise CommitFailed("the table's row in `batchmerge_state` is gone", where=work.name, remedy="run again")
    return row

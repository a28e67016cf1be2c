"""Removes what merges leave behind (merged rows, staging tables of earlier generations), and updates the table's label.

All of it may be repeated: what a run could not do, the next merge does.
"""

from __future__ import annotations

import logging

from jobs.destinations.bigquery.flush import Flush
from jobs.destinations.bigquery.state import StateRow
from jobs.destinations.bigquery.tables import new_staging_table
from jobs.destinations.bigquery.work import TableWork
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")


def clean_up(work: TableWork, row: StateRow, flush: Flush) -> None:
    """Cleans up after a flush that is merged; a failure is a warning."""
    try:
        remove_merged(work, row, flush.last.number)
        _label_destination(work, flush)
    except BatchmergeError as problem:
        _LOG.warning("%s: clean-up is left to the next merge: %s", work.name, problem)


def remove_merged(work: TableWork, row: StateRow, last: int) -> int:
    """Removes batches up to this one from the staging table; returns how many older staging tables it dropped."""
    work.remove_staged(row, last, work.keeps_deletes)
    return _drop_leftovers(work, row)


def _drop_leftovers(work: TableWork, row: StateRow) -> int:
    """Drops staging tables of earlier generations; returns how many."""
    mine = new_staging_table(work.bigquery.table_id(row.staging_table), work.pipeline, work.table.table, []).labels
    left = [
        table
        for table, labels in work.bigquery.tables(work.table.table.split(".")[0])
        if table != row.staging_table and mine.items() <= labels.items() and "batchmerge-replay" not in labels
    ]
    # A new staging table is made after the row names it: if the row is unchanged, all of these are older. All but
    # one that is just taking deletes over: then they are lost, and remembered from the landed batches.
    if not left or (now := work.state.read()) is None or now.generation != row.generation:
        return 0
    for table in left:
        _LOG.info("%s: dropping the left-over staging table %s", work.name, table)
        work.bigquery.delete_table(table)
    return len(left)


def _label_destination(work: TableWork, flush: Flush) -> None:
    found = work.bigquery.find_table(work.table.table)
    if found is not None:
        work.bigquery.add_labels(found, {"batchmerge-batch": str(flush.last.number)})

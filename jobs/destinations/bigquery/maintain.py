"""Removes what merges leave behind (merged rows, staging tables of earlier generations), and updates the table's label.

All of it may be repeated: what a run could not do, the next merge does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from jobs.destinations.bigquery.flush import Flush
from jobs.destinations.bigquery.state import StateRow
from jobs.destinations.bigquery.tables import new_staging_table
from jobs.destinations.bigquery.work import Work
from resources.errors import BatchmergeError
from sql import render

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class CleanUp(Work):
    """Cleans up after the merges of one table."""

    def clean_up(self, row: StateRow, flush: Flush) -> None:
        """Cleans up after a flush that is merged; a failure is a warning."""
        try:
            self.remove_merged(row, flush.last.number)
            self._label_destination(flush)
        except BatchmergeError as problem:
            _LOG.warning("%s: clean-up is left to the next merge: %s", self.where, problem)

    def remove_merged(self, row: StateRow, last: int) -> int:
        """Removes batches up to this one from the staging table; returns how many older staging tables it dropped."""
        staging_table = self.bigquery.table_id(row.staging_table)
        text = render("bigquery", "clean_up", staging_table=staging_table, keep_deletes=self.keeps_deletes)
        self.bigquery.change(text, {"last": last}, self.where)
        return self._drop_leftovers(row)

    def _drop_leftovers(self, row: StateRow) -> int:
        """Drops staging tables of earlier generations; returns how many."""
        mine = new_staging_table(self.bigquery.table_id(row.staging_table), self.pipeline, self.table.table, []).labels
        left = [
            table
            for table, labels in self.bigquery.tables(self.table.table.split(".")[0])
            if table != row.staging_table and mine.items() <= labels.items() and "batchmerge-replay" not in labels
        ]
        # A new staging table is made after the row names it: if the row is unchanged, all of these are older. All but
        # one that is just taking deletes over: then they are lost, and remembered from the landed batches.
        if not left or self._generation() != row.generation:
            return 0
        for table in left:
            _LOG.info("%s: dropping the left-over staging table %s", self.where, table)
            self.bigquery.delete_table(table)
        return len(left)

    def _generation(self) -> str | None:
        row = self.state.read()
        return row.generation if row else None

    def _label_destination(self, flush: Flush) -> None:
        found = self.bigquery.find_table(self.table.table)
        if found is not None:
            found.labels = {**found.labels, "batchmerge-batch": str(flush.last.number)}
            self.bigquery.update_table(found, ["labels"])

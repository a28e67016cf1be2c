"""Checks before a table is created or written, its rows are replayed or its state is dropped, for all systems."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jobs.batch import CommittedState
from jobs.lineage import RecreatedTopics
from jobs.spec.tables import OnReplaced, Table
from resources.errors import CommitFailed, ConfigurationError, InvariantBroken, TableReplaced

_LOG = logging.getLogger("batchmerge")
NO_TABLE = "name a table of its own, or the table behind it"
"""The remedy for what has a table's name and takes no rows."""


def require_create(table: Table, where: str) -> None:
    """For a table that does not exist: raises ConfigurationError if it may not be created."""
    if not table.create:
        raise ConfigurationError(
            "the table does not exist and `create` is false", where=where, remedy="create it, or allow it here"
        )


def require_same_table(
    committed: CommittedState,
    known: str,
    present: str | None,
    table: Table,
    where: str,
    rows: Callable[[], int],
    on_replaced: OnReplaced | None = None,
) -> None:
    """Requires that the present table is the one into which the committed batches were merged; one with rows counts as
    restored, or made again from it (`CREATE OR REPLACE TABLE … AS SELECT`), if replays can bring what it lacks.

    Args:
        known: the id of that table. present: the id of the present one; None: there is no table.
        rows: asks for the number of its rows.
        on_replaced: the table's option, if it has one: `keep` takes a table with rows as it is.

    Raises:
        TableReplaced: it was dropped, or created again without its rows; or no replay can bring what it lacks.
    """
    if present == known:
        return
    has_rows = present is not None and rows() > 0
    if has_rows and (table.has_coordinates or on_replaced == "keep"):
        untraced_to = committed.untraced(table)
        lasting = f" (batches up to {untraced_to} cannot be replayed: the table cannot tell which of their rows it has)"
        _LOG.warning(
            "%s: this is another table than the one with batch %d, but it has rows: it counts as restored. What was "
            "merged since its backup is missing until `batchmerge replay %s --batches A-%d --table '%s'` brings it%s",
            where, committed.batch_number, committed.pipeline, committed.batch_number, where,
            lasting if untraced_to else "",
        )  # fmt: skip
        return
    happened = "was dropped" if present is None else "was dropped and created again, or restored,"
    keep = "if it has all rows, set its option `on_replaced: keep`; " if on_replaced == "hold" and has_rows else ""
    raise TableReplaced(
        f"the table {happened} after batch {committed.batch_number} was committed",
        where=where,
        remedy=f"{keep}bring the old table back; or, to fill a new one from the landed batches, drop the table and "
        f"call `batchmerge offsets forget {committed.pipeline} <table>`",
    )


def require_known_rows(rows: int, table: Table, where: str, bring_back: str = "bring the row back") -> None:
    """For a table with rows whose row in `batchmerge_state` is gone, so that nobody knows which batches it has.

    It is merged again from the start, which is harmless with a unique key; without one, rows would be doubled.

    Raises:
        InvariantBroken: rows would be doubled.
    """
    if not rows:
        return
    lost = f"the table has {rows} rows, and its row in `batchmerge_state` is gone"
    if table.has_unique_key:
        _LOG.warning("%s: %s: all batches that are still landed are merged again", where, lost)
        return
    raise InvariantBroken(
        f"{lost}: the landed batches would be added a second time",
        where=where,
        remedy=f"if the table was renamed, give it its old name again; else {bring_back}, or drop the table: the next "
        "run fills a new one from what is landed",
    )


def require_batch_column(recreated: RecreatedTopics, table: Table, where: str) -> None:
    """For replays of tables without a unique key, whose rows have a topic's name but not its id.

    Args:
        recreated: the topics that were recreated since the table's first rows.

    Raises:
        ConfigurationError: the rows lack the column that tells which topic of a name they are from.
    """
    if recreated and "batch" not in table.metadata_columns:
        raise ConfigurationError(
            f"{', '.join(sorted(recreated))} was recreated: rows of two topics may have the same offset, and no column "
            "shows which topic a row is from",
            where=where,
            remedy="fill a new table with `metadata_columns: [topic, partition, offset, batch]`",
        )


def require_empty(rows: int | None, where: str) -> None:
    """For `Destination.drop_state`: refuses a table with rows; `rows` is None if the table is gone.

    Raises:
        ConfigurationError: the table has rows.
    """
    if rows:
        raise ConfigurationError(
            f"the table has {rows} rows, which would come twice",
            where=where,
            remedy="drop the table first, to fill it again",
        )


def require_nothing_begun(batch: int, pipeline: str, where: str) -> None:
    """For take-overs: refuses a table with a half-done batch, which only its pipeline can complete.

    Args:
        batch: the one that was begun and not committed; 0 for none.

    Raises:
        ConfigurationError: there is one.
    """
    if batch:
        raise ConfigurationError(
            f"batch {batch} of pipeline {pipeline} is half done",
            where=where,
            remedy=f"run pipeline {pipeline}, with this table in its file, once more before its tables are taken over",
        )


def require_planned(found: CommittedState | None, planned: CommittedState | None, where: str) -> None:
    """For `Destination.hand_over`: refuses a table that its pipeline has written since the take-over was planned.

    Args:
        found: the table's state, which the hand-over compares and sets.
        planned: the state from which the other pipeline continues; None: it begins at its start.

    Raises:
        CommitFailed: the other pipeline would write again what was committed since.
    """
    if found and (planned is None or found.commit_id != planned.commit_id):
        raise CommitFailed(
            f"pipeline {found.pipeline} has committed batch {found.batch_number} meanwhile",
            where=where,
            remedy=f"stop what still runs pipeline {found.pipeline}, then take its tables over by a pipeline of "
            "another new name",
        )

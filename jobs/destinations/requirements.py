"""What must hold before a table is made, its rows are replayed or its state is forgotten, whatever its system."""

from __future__ import annotations

from jobs.lineage import RecreatedTopics
from jobs.spec.tables import Table
from resources.errors import ConfigurationError


def require_create(table: Table, where: str) -> None:
    """For a table that does not exist. Raises ConfigurationError where it may not be made."""
    if not table.create:
        raise ConfigurationError(
            "the table does not exist and `create` is false", where=where, remedy="create it, or allow it here"
        )


def require_batch_column(recreated: RecreatedTopics, table: Table, where: str) -> None:
    """For replays of tables without a unique key, whose rows say a topic's name and not its id.

    Args:
        recreated: since the table has rows.

    Raises:
        ConfigurationError: the rows do not say which topic of a name they are from.
    """
    if recreated and "batch" not in table.metadata_columns:
        raise ConfigurationError(
            f"{', '.join(sorted(recreated))} was recreated: rows of two topics may have the same offset, and nothing "
            "in a row says which topic it is from",
            where=where,
            remedy="fill a new table with `metadata_columns: [topic, partition, offset, batch]`",
        )


def require_empty(rows: int | None, where: str) -> None:
    """For `Destination.drop_state`: refuses a table with rows; None where it is gone.

    Raises:
        ConfigurationError: it has rows.
    """
    if rows:
        raise ConfigurationError(
            f"the table has {rows} rows, which would come twice",
            where=where,
            remedy="drop the table first, if it is to be filled again",
        )

"""What must hold before rows are replayed or a table's state is forgotten, in whatever system it is."""

from __future__ import annotations

from jobs.lineage import RecreatedTopics
from jobs.spec.tables import Table
from resources.errors import ConfigurationError


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

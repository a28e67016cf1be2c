"""A table that is to be filled anew must be empty first."""

from __future__ import annotations

from resources.errors import ConfigurationError


def require_empty(rows: int | None, where: str) -> None:
    """Refuses a table with rows, or None where it is gone.

    Raises:
        ConfigurationError: it has rows.
    """
    if rows:
        raise ConfigurationError(
            f"the table has {rows} rows, which would come twice",
            where=where,
            remedy="drop the table first, if it is to be filled anew",
        )

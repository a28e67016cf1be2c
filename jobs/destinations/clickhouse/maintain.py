"""Hard deletion: removes replaced versions and rows of deletes from a table of upserts.

Until then they are hidden by FINAL only. A delete that is gone for good cannot hold its place against an older change
that comes later; the order of batches lets none come, a named order (`changes.order_by`) does: there deletes stay.
"""

from __future__ import annotations

from resources.clickhouse import ClickHouseServer
from resources.errors import ConfigurationError
from sql import render


def clean_up(
    server: ClickHouseServer, path: tuple[str, ...], cluster: str | None, deletes: bool, ordered: bool
) -> None:
    """Merges all parts of each table partition and, with `deletes`, drops the rows of deleted keys.

    Raises:
        ConfigurationError: deletes have to stay because an order is named.
    """
    if deletes and ordered:
        raise ConfigurationError(
            "deletes of a table with a named order have to stay: an older change may still come",
            where=f"clickhouse {'.'.join(path)}",
            remedy="only merge the versions, without removing deletes",
        )
    if deletes:
        server.execute(render("clickhouse", "table_allow_cleanup", table=path, cluster=cluster))
    server.execute(render("clickhouse", "table_optimize", table=path, cluster=cluster, deletes=deletes))

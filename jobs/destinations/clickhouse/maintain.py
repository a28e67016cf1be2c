"""Removes what ReplacingMergeTree would remove sooner or later: replaced versions and rows of deletes.

Until then they are hidden by FINAL only. A delete that is gone for good cannot hold its place against an older change
that comes later; the order of batches lets none come, a named order (`changes.order_by`) does: there deletes stay.
"""

from __future__ import annotations

from jobs.destinations.clickhouse.tables import Layout
from resources.clickhouse import ClickHouseServer
from sql import render


def clean_up(server: ClickHouseServer, layout: Layout, deletes: bool) -> None:
    """Merges all parts of each table partition and, with `deletes`, drops the rows of deleted keys."""
    where = {"table": layout.path, "cluster": layout.cluster}
    if deletes:
        server.execute(render("clickhouse", "table_allow_cleanup", **where))
    server.execute(render("clickhouse", "table_optimize", **where, deletes=deletes))

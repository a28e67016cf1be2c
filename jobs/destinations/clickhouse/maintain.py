"""Drops the rows that stand for deletes; replaced versions of rows are left to ClickHouse's own merges.

Until then FINAL hides them. The row of a delete has to stay as long as an older change of its key may still come,
or that change would bring the row back. Without `changes.order_by` that is only possible in an unfinished step; with it
always, so deletes are never dropped there.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.state import require_owner
from sql import render

_LOG = logging.getLogger("batchmerge")


def drop_deletes(shard: Shard, seconds: int) -> int:
    """Rewrites the table partitions that have rows of deletes, without these; returns how many.

    It holds the lease: chunks of an unfinished step may have older changes than a delete has. Where the time ends
    before the statement, the next run that takes the lease stops it.

    Args:
        seconds: time limit of one statement.
    """
    # `optimize_skip_merged_partitions` would also skip those with deletes in a single part.
    server, asked = shard.server.with_time(seconds), render("clickhouse", "partitions_with_deletes", **_table(shard))
    found = server.rows(asked) if "MergeTree" in shard.require_table().engine else []
    lease = shard.store.lease()
    if not found or lease is None:
        return 0
    if lease.left_behind or (lease.owner and _may_be_at_work(shard)):
        _LOG.warning(
            "%s: a batch is half done, or a replay is running: rows of deletes are kept until the next maintenance",
            shard.where,
        )
        return 0
    held = shard.take(lease)
    shard.server.execute(render("clickhouse", "table_allow_cleanup", **_table(shard)))
    for row in found:
        require_owner(held, shard.store.lease(), shard.where)
        sql = render("clickhouse", "partition_clean_up", **_table(shard), partition=row["id"])
        server.execute(sql, settings={"query_id": shard.query_id(held)})
    shard.release(held)
    return len(found)


def _may_be_at_work(shard: Shard) -> bool:
    """Whether the lease has changed within a step's time limit, so that its owner (as a replay) may still be alive."""
    state = shard.store.state()
    limit = timedelta(seconds=shard.table.time_limit_seconds)
    return state is not None and datetime.now(UTC) - state.changed_at < limit


def _table(shard: Shard) -> dict[str, object]:
    # With several endpoints the statement is run on each.
    return {"table": shard.layout.path, "cluster": shard.layout.cluster if len(shard.endpoints) == 1 else None}

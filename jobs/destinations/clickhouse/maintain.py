"""Removes what ReplacingMergeTree would remove sooner or later: replaced versions and rows of deletes.

Until then only FINAL hides them. The row of a delete has to stay as long as an older change of its key may still come,
or that change would bring the row back. Without `changes.order_by` that is only possible in an unfinished step; with it
always, so deletes are never dropped there.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from jobs.destinations.clickhouse.leases import lease_state
from jobs.destinations.clickhouse.shard import Shard
from sql import render

_LOG = logging.getLogger("batchmerge")


def clean_up(shard: Shard, deletes: bool, seconds: int) -> None:
    """Merges all parts of each table partition and, with `deletes`, drops the rows of deleted keys.

    Args:
        seconds: time limit of one statement.
    """
    if deletes:
        _with_deletes(shard, seconds)
    else:
        _optimize(shard, seconds)


def _with_deletes(shard: Shard, seconds: int) -> None:
    """Drops deleted rows under the lease: chunks of an unfinished step may have older changes than a delete has."""
    lease = shard.store.lease()
    if lease is None or lease.left_behind or (lease.owner and _may_be_at_work(shard)):
        _LOG.warning(
            "%s: a batch is half done, or a replay is running: rows of deletes are kept until the next maintenance",
            shard.where,
        )
        _optimize(shard, seconds)
        return
    held = shard.store.swap(lease, replace(lease, epoch=lease.epoch + 1, owner=uuid.uuid4().hex, run_id=""))
    shard.stop_older(held)
    shard.server.execute(render("clickhouse", "table_allow_cleanup", **_table(shard)))
    # A run that begins a step meanwhile finds the statement by this id and stops it first.
    _optimize(shard, seconds, deletes=True, query=f"{shard.query_prefix}{held.epoch}-{uuid.uuid4().hex}")
    shard.store.swap(held, replace(held, owner=""))


def _may_be_at_work(shard: Shard) -> bool:
    """Whether the lease has changed within a step's time limit, so that its owner (as a replay) may still be alive."""
    state = lease_state(shard.server, shard.store.table, shard.store.name)
    limit = timedelta(seconds=shard.table.time_limit_seconds)
    return state is not None and datetime.now(UTC) - state.changed_at < limit


def _optimize(shard: Shard, seconds: int, deletes: bool = False, query: str | None = None) -> None:
    sql = render("clickhouse", "table_optimize", **_table(shard), deletes=deletes)
    shard.server.with_time(seconds).execute(sql, settings={"query_id": query} if query else None)


def _table(shard: Shard) -> dict[str, object]:
    # With several endpoints the statement is run on each.
    return {"table": shard.layout.path, "cluster": shard.layout.cluster if len(shard.endpoints) == 1 else None}

"""Removes what ReplacingMergeTree would remove sooner or later: replaced versions and rows of deletes.

Until then they are hidden by FINAL only. A delete that is gone for good cannot hold its place against an older change
that comes later; the order of batches lets none come but within a step, a named order (`changes.order_by`) does: there
deletes stay.
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
        seconds: how long one statement may take.
    """
    if deletes:
        _with_deletes(shard, seconds)
    else:
        _optimize(shard, seconds)


def _with_deletes(shard: Shard, seconds: int) -> None:
    """Under the lease: a chunk of a half-done step may have an older change than a delete that is there already."""
    lease = shard.store.lease()
    if lease is None or lease.left_behind or (lease.owner and _may_be_at_work(shard)):
        _LOG.warning(
            "%s: a batch is half done, or a replay is under way: rows of deletes stay until the next maintenance",
            shard.where,
        )
        _optimize(shard, seconds)
        return
    held = shard.store.swap(lease, replace(lease, epoch=lease.epoch + 1, owner=uuid.uuid4().hex, run_id=""))
    shard.stop_older(held)
    shard.server.execute(render("clickhouse", "table_allow_cleanup", **_table(shard)))
    # By this id a run that begins a step meanwhile stops it first.
    _optimize(shard, seconds, deletes=True, query=f"{shard.query_prefix}{held.epoch}-{uuid.uuid4().hex}")
    shard.store.swap(held, replace(held, owner=""))


def _may_be_at_work(shard: Shard) -> bool:
    """Whether the lease has changed within the time that a step may take: its owner, as a replay, is not stopped."""
    state = lease_state(shard.server, shard.store.table, shard.store.name)
    limit = timedelta(seconds=shard.table.time_limit_seconds)
    return state is not None and datetime.now(UTC) - state.changed_at < limit


def _optimize(shard: Shard, seconds: int, deletes: bool = False, query: str | None = None) -> None:
    sql = render("clickhouse", "table_optimize", **_table(shard), deletes=deletes)
    shard.server.with_time(seconds).execute(sql, settings={"query_id": query} if query else None)


def _table(shard: Shard) -> dict[str, object]:
    # Each of several endpoints is asked itself.
    return {"table": shard.layout.path, "cluster": shard.layout.cluster if len(shard.endpoints) == 1 else None}

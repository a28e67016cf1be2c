"""Forgetting what a table on one endpoint has, after it was dropped on purpose: it is filled again from the log."""

from __future__ import annotations

import uuid
from dataclasses import replace

from jobs.destinations.clickhouse import tables
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.requirements import require_empty


def drop_state(shard: Shard) -> bool:
    """Removes lease and partition rows; false where there were none.

    The lease is taken first, so that a run of before, which may only sleep, is refused or stopped.

    Raises:
        ConfigurationError: the table has rows. CommitFailed, Interrupted: a run was at it this very moment.
    """
    lease = shard.store.lease()
    if lease is None:
        return False
    present = tables.describe(shard.server, shard.layout.path)
    require_empty(present.rows if present else None, shard.where)
    held = replace(lease.idle(), epoch=lease.epoch + 1, owner=uuid.uuid4().hex, run_id="")
    held = shard.store.swap(lease, held)
    shard.stop_older(held)
    shard.store.forget(held)
    return True

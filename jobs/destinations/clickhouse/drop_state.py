"""Ending a pipeline's state of a table on one endpoint: it was dropped, or another pipeline takes it over."""

from __future__ import annotations

import uuid
from dataclasses import replace

from jobs.batch import CommittedState
from jobs.destinations.clickhouse import tables
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.requirements import require_empty, require_planned
from jobs.failpoints import failpoint
from resources.errors import ConfigurationError


def drop_state(shard: Shard) -> bool:
    """Removes lease and partition rows; false where there were none.

    Raises:
        ConfigurationError: the table has rows. CommitFailed, Interrupted: a run was at it this very moment.
    """
    lease = shard.store.lease()
    if lease is None:
        return False
    present = tables.describe(shard.server, shard.layout.path)
    require_empty(present.rows if present else None, shard.where)
    _forget(shard, lease)
    return True


def hand_over(shard: Shard, to: str, at: CommittedState | None) -> bool:
    """Makes a lease for this pipeline, and removes the present lease and partition rows; false where there were none.

    Args:
        at: the state that the other pipeline goes on from; None: it begins at its start.

    Raises:
        ConfigurationError: a batch is half done. CommitFailed, Interrupted: it is at another state, or a run was at it
        this very moment.
    """
    lease = shard.store.lease()
    if lease is None:
        return False
    require_planned(lease.committed, at, shard.where)
    if lease.left_behind:
        raise ConfigurationError(
            f"batch {lease.batch} of pipeline {shard.pipeline} is half done",
            where=shard.where,
            remedy=f"run pipeline {shard.pipeline} once more before its tables are taken over",
        )
    # First: where this dies in between, the table still has a state to hand over, and doing it again completes it.
    new = KeeperStore(shard.server, f"{to}/{shard.table.table}/{shard.number}")
    if new.lease() is None:
        new.swap(None, Lease(endpoints=lease.endpoints, spread_by=lease.spread_by))
    failpoint("take-over.given")
    _forget(shard, lease)
    return True


def _forget(shard: Shard, lease: Lease) -> None:
    """Takes the lease first, so that a run of before, which may only sleep, is refused or stopped."""
    held = replace(lease.idle(), epoch=lease.epoch + 1, owner=uuid.uuid4().hex, run_id="")
    held = shard.store.swap(lease, held)
    shard.stop_older(held)
    shard.store.forget(held)

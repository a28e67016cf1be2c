"""Removes a pipeline's state of a table on one endpoint: the table was dropped, or another pipeline takes it over."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jobs.batch import CommittedState
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.requirements import require_empty, require_nothing_begun, require_planned
from jobs.failpoints import failpoint

_LOG = logging.getLogger("batchmerge")


def drop_state(shards: Sequence[Shard]) -> bool:
    """Removes lease and partition rows of the endpoints that have lost their rows; false if there were none.

    The others keep theirs: what they have is not merged again.

    Raises:
        ConfigurationError: all have rows. CommitFailed, Interrupted: a run is writing the table at the same time.
    """
    known = [(shard, lease) for shard in shards if (lease := shard.store.lease())]
    rows = [shard.row_count(shard.present()) for shard, _ in known]
    if known and all(rows):
        require_empty(sum(rows), known[0][0].where)
    for (shard, lease), count in zip(known, rows, strict=True):
        if count:
            _LOG.warning("%s: it has %d rows and keeps its state", shard.where, count)
        else:
            _forget(shard, lease)
    return bool(known)


def hand_over(shard: Shard, to: str, at: CommittedState | None) -> bool:
    """Creates a lease for pipeline `to`, and removes the present lease and partition rows; false if there were none.

    Args:
        at: the state from which the other pipeline continues; None: it begins at its start.

    Raises:
        ConfigurationError: a batch is half done. CommitFailed, Interrupted: the table is at another state, or a run is
            writing it at the same time.
    """
    lease = shard.store.lease()
    if lease is None:
        return False
    require_planned(lease.committed, at, shard.where)
    require_nothing_begun(lease.batch, shard.pipeline, shard.where)
    # First, so that a crash in between leaves the old state, and repeating the hand-over completes it.
    new = KeeperStore(shard.server, f"{to}/{shard.table.table}/{shard.number}")
    if new.lease() is None:
        new.swap(None, Lease(endpoints=lease.endpoints, spread_by=lease.spread_by))
    failpoint("take-over.given")
    _forget(shard, lease)
    return True


def _forget(shard: Shard, lease: Lease) -> None:
    """Takes the lease first, so that an earlier run that wakes up is refused or stopped."""
    shard.store.forget(shard.take(lease))

"""Checks before a table is written: it is on the same endpoints, and the batches follow its state."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.clickhouse.engines import NOT_WRITTEN, why_it_lacks
from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.requirements import NO_TABLE
from resources.errors import CommitFailed, ConfigurationError

_LOG = logging.getLogger("batchmerge")


def check_endpoints(where: str, lease: Lease, endpoints: tuple[str, ...]) -> None:
    """Requires the same endpoints in the same order, since they determine on which one a row is."""
    renamed_only = len(lease.endpoints) == len(endpoints) == 1
    if lease.endpoints and lease.endpoints != endpoints and not renamed_only:
        raise ConfigurationError(
            f"rows were spread over {', '.join(lease.endpoints)}, and the connection now names "
            f"{', '.join(endpoints)}: rows of a key would be on two endpoints",
            where=where,
            remedy="name the endpoints as they were, in their order; for other ones start a new table (another "
            "name in `tables`) and let it be filled from the landed batches",
        )


def check_spread(where: str, lease: Lease, spread_by: str, without_types: str) -> None:
    """Requires the same hash, since it too determines on which endpoint a row is; old leases lack it, or its types."""
    if lease.spread_by not in ("", spread_by, without_types):
        raise ConfigurationError(
            f"rows were spread over the endpoints by {lease.spread_by}, and the pipeline file now says {spread_by}: "
            "rows of a key would be on two endpoints",
            where=where,
            remedy="set `hash_function`, `shard_by` and the types of these columns as they were; for others start a "
            "new table (another name in `tables`) and let it be filled from the landed batches",
        )


def check_takes_rows(where: str, lease: Lease, present: Present) -> None:
    """Requires a table that keeps what is inserted; a pipeline that older versions let into another one is warned."""
    why = NOT_WRITTEN.get(present.engine)
    if why and lease.committed and lease.table_id == present.id:
        _LOG.warning("%s: %s: %s", where, why, NO_TABLE)
    elif why:
        raise ConfigurationError(why, where=where, remedy=NO_TABLE)


def check_keeps_records(where: str, table: ClickHouseTable, present: Present | None) -> None:
    """Requires that a table lacks only those records that it never got, before it gets the ones that it lacks."""
    if present and table.mode == "append" and (why := why_it_lacks(present.engine)):
        raise ConfigurationError(
            f"its engine, {present.engine}, {why}, so nothing shows which records the table lacks: those that it has "
            "got would come again, older values over newer ones",
            where=where,
            remedy="fill a new table: for one row a key of mode upsert or upsert_delete; of mode append by a pipeline "
            "of another name, which has read no record again",
        )


def check_continues(
    where: str,
    state: CommittedState | None,
    committed: CommittedState | None,
    batches: Sequence[LandedBatch],
    newer: Sequence[LandedBatch],
) -> None:
    """Requires that this shard's state is the one that the caller planned from, or one of the batches after it."""
    known = {b.batch.commit_id for b in batches} | ({committed.commit_id} if committed else set())
    if state and state.commit_id not in known:
        raise CommitFailed(f"another run has committed batch {state.batch_number} meanwhile", where=where)
    if state and newer and not newer[0].batch.follows(state.commit_id):
        raise CommitFailed(f"batch {newer[0].number} does not follow batch {state.batch_number}", where=where)

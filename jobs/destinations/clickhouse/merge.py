"""Merges landed batches into one table on one endpoint, and replays them: which steps, and what they insert."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.clickhouse import window
from jobs.destinations.clickhouse.advance import Advance
from jobs.destinations.clickhouse.checks import check_continues, check_keeps_records
from jobs.destinations.clickhouse.chunk_size import chunk_rows, landed_bytes
from jobs.destinations.clickhouse.engines import why_it_lacks
from jobs.destinations.clickhouse.insert_task import InsertCounts
from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.clickhouse.step_inserts import StepInserts
from jobs.destinations.clickhouse.steps import Step, cut, left_behind
from jobs.destinations.merge_context import MergeContext
from jobs.destinations.stages import Stages
from jobs.failpoints import failpoint
from jobs.offsets import total
from resources.errors import CommitFailed, ConfigurationError, LineageBroken
from resources.spark import parallelism
from sql import render

_LOG = logging.getLogger("batchmerge")


def merge(
    shard: Shard,
    context: MergeContext,
    committed: CommittedState | None,
    batches: Sequence[LandedBatch],
    clock: Stages,
) -> InsertCounts:
    """Applies those of these batches that this shard does not have yet. The clock gets the stage `insert`."""
    lease = shard.store.lease()
    failpoint("merge.begun")
    state = lease.committed if lease else None
    if (committed.batch_number if committed else 0) > (state.batch_number if state else 0):
        raise CommitFailed("the state has gone back since it was read", where=shard.where)
    newer = [b for b in batches if state is None or b.number > state.batch_number]
    if state and state.batch_number > batches[-1].number and _is_landed(state.commit_id, context):
        return InsertCounts()  # the table is behind, by another endpoint
    check_continues(shard.where, state, committed, batches, newer)
    if not newer:
        return InsertCounts()
    present = shard.require_table()
    if lease is None or not lease.state:
        lease = _claim(shard, lease, present, context.intermediate.landed().batches)
    steps = _steps(shard, context, lease, newer, present)
    inserted = advance_of(shard, StepInserts(shard, context, present), clock).run(lease, steps)
    failpoint("merge.published")
    return inserted


def replay(
    shard: Shard, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch], clock: Stages
) -> InsertCounts:
    """Inserts what is missing of these batches (append), or the newest version of their keys (upserts).

    Up to this shard's own state: where it is ahead of the table, the row of a later delete may be dropped already.
    """
    lease = shard.store.lease()
    state = lease.committed if lease else None
    if lease is None or state is None or lease.left_behind or state.batch_number < committed.batch_number:
        raise CommitFailed("a batch is under way: replay after it is committed", where=shard.where)
    present = shard.require_table()
    inserts = StepInserts(shard, context, present)
    held = advance_of(shard, inserts, clock).take(lease, None)
    done = clock.time("insert", lambda: inserts.replay(held, state.batch_number, batches))
    shard.release(held)
    return done


def _is_landed(commit_id: str, context: MergeContext) -> bool:
    return any(b.batch.commit_id == commit_id for b in context.intermediate.landed().batches)


def _steps(
    shard: Shard, context: MergeContext, lease: Lease | None, newer: Sequence[LandedBatch], present: Present
) -> list[Step]:
    """What is to be done: first what another run has left behind, as it was begun, then the rest."""
    try:
        # What views, and engines that join rows, have of a chunk only its token tells.
        by_token = present.views or (shard.table.mode == "append" and why_it_lacks(present.engine))
        begun = left_behind(lease, newer, shard.where, None if by_token else shard.table.chunk_rows)
    except LineageBroken:
        if lease and _is_landed(lease.commit_id, context):
            raise CommitFailed(f"batch {lease.batch} is under way in another run", where=shard.where) from None
        raise
    rest = newer[len(begun.batches) :] if begun else newer
    found = window.windows(shard.server, shard.layout.path, present)
    steps = [begun] if begun else []
    if rest:
        most = min(w.chunks for w in found)
        rows = chunk_rows(
            offsets=sum(total(b.batch.ranges) for b in rest),
            size=landed_bytes(rest, context.intermediate),
            most=shard.table.chunk_rows,
            cores=lambda: parallelism(context.spark),
            most_chunks=most,
        )
        steps += cut(rest, rows, most)
    for each in found:
        each.check(max(len(step.chunks) for step in steps))
    return steps


def _claim(shard: Shard, lease: Lease | None, present: Present, landed: Sequence[LandedBatch]) -> Lease:
    """The lease of a table without a batch.

    It is written first; then other pipelines are looked for, and it is removed if there is one. So of two that begin
    at the same moment at least one sees the other.

    Args:
        landed: all landed batches: the table may have any of them, not only those that are merged first.
    """
    if lease is None:
        _check_versions(shard, present, landed)
        refill_until = landed[-1].number if _has_lost_its_state(shard, present, landed) else 0
        lease = shard.store.swap(None, Lease(refill_until=refill_until))
    try:
        shard.check_only_writer()
    except ConfigurationError:
        if not lease.owner:
            shard.store.forget(lease)
        raise
    return lease


def _has_lost_its_state(shard: Shard, present: Present, landed: Sequence[LandedBatch]) -> bool:
    """Whether the table has records of these topics but no lease: KeeperMap was emptied or replaced.

    Raises:
        ConfigurationError: it has, and nothing shows which records it lacks.
    """
    if shard.table.mode != "append" or not shard.row_count(present):
        return False
    topics = sorted({tp.topic for b in landed for tp in b.batch.ranges})
    sql = render("clickhouse", "some_records", table=shard.layout.path)
    if not shard.server.rows(sql, {"topics": topics}):
        return False
    check_keeps_records(shard.where, shard.table, present)
    _LOG.warning(
        "%s: the table has rows of %s and %s (keeper_path %s) knows nothing of it: the state was emptied, or "
        "`keeper_path` or `state_table` is another one. Only records that are missing are inserted. Fix: stop the "
        "run and name the state as it was, if there still is one",
        shard.where,
        ", ".join(topics),
        ".".join(shard.store.table),
        shard.server.connection.keeper_path,
    )
    return True


def _check_versions(shard: Shard, present: Present, landed: Sequence[LandedBatch]) -> None:
    """Upserts of batches that a table without a lease is past would be hidden, and counted.

    Raises:
        ConfigurationError: KeeperMap and the intermediate table are both new, and the table is not.
    """
    if not shard.layout.versioned or shard.layout.ordered or not shard.row_count(present):
        return
    there = shard.server.rows(render("clickhouse", "newest_batch", table=shard.layout.path))[0]["batch"]
    newest = landed[-1].number
    if there > newest:
        raise ConfigurationError(
            f"the table has rows of batch {there}, and the landed batches end with batch {newest}: the state "
            f"({'.'.join(shard.store.table)}, keeper_path {shard.server.connection.keeper_path}) and the landed table "
            "are others than those that it was filled with, and newer rows would be hidden",
            where=shard.where,
            remedy="name state and landed table as they were, if they are still there; otherwise name a new table in "
            "`tables`",
        )


def advance_of(shard: Shard, inserts: StepInserts, clock: Stages) -> Advance:
    return Advance(
        store=shard.store,
        where=shard.where,
        run_id=inserts.context.run_id,
        endpoints=shard.endpoints,
        spread_by=shard.spread_by,
        table_id=inserts.present.id,
        stop_older=shard.stop_older,
        insert=lambda held, step, only: clock.time("insert", lambda: inserts.of_step(held, step, only)),
    )

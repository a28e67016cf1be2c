"""One table on one endpoint: its lease, and the inserts of batches and replays into it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.base import MergeContext
from jobs.destinations.clickhouse import tables, window
from jobs.destinations.clickhouse.advance import Advance
from jobs.destinations.clickhouse.checks import check_continues, check_endpoints, check_table
from jobs.destinations.clickhouse.chunk_size import Landed, chunk_rows
from jobs.destinations.clickhouse.insertion import Inserted
from jobs.destinations.clickhouse.inserts import Inserts
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.lease import Lease
from jobs.destinations.clickhouse.side_table import SideTable
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.steps import Step, cut, left_behind
from jobs.destinations.clickhouse.tables import Layout, Present
from jobs.failpoints import failpoint
from jobs.spec.columns import RowColumn
from jobs.spec.pipeline import PipelineSpec
from resources.clickhouse import ClickHouseServer, retried
from resources.errors import CommitFailed, LineageBroken, TableReplaced
from resources.spark import parallelism
from sql import render

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class Shard:
    """A destination table on one endpoint.

    Attributes:
        number: of the endpoint, from 1.
        rows: the columns of a row, as landed.
        order_by: the column that orders the changes to one key; None for their arrival, and where each stays a row.
    """

    pipeline: str
    spec: PipelineSpec
    table: ClickHouseTable
    server: ClickHouseServer
    number: int
    layout: Layout
    rows: tuple[RowColumn, ...]
    order_by: RowColumn | None

    @property
    def where(self) -> str:
        return f"clickhouse {self.table.table} on {self.server.endpoint}"

    @cached_property
    def store(self) -> KeeperStore:
        return KeeperStore(self.server, f"{self.pipeline}/{self.table.table}/{self.number}")

    @cached_property
    def statements(self) -> Statements:
        return Statements(self.layout, self.store.table)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(self.server.connection.endpoints)

    def committed(self) -> CommittedState | None:
        lease = self.store.lease()
        if lease is None:
            return None
        check_endpoints(self.where, lease, self.endpoints)
        if lease.state:
            check_table(self.where, lease, tables.describe(self.server, self.layout.path))
        return lease.committed

    @cached_property
    def dead_letters(self) -> SideTable:
        return SideTable(self.server, self.statements.side_table, f"clickhouse {self.table.table}")

    def merge(
        self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]
    ) -> Inserted:
        """Applies those of these batches that this shard does not have yet."""
        lease = self.store.lease()
        failpoint("merge.begun")
        state = lease.committed if lease else None
        if (committed.batch_number if committed else 0) > (state.batch_number if state else 0):
            raise CommitFailed("the state has gone back since it was read", where=self.where)
        newer = [b for b in batches if state is None or b.number > state.batch_number]
        check_continues(self.where, state, committed, batches, newer)
        if not newer:
            return Inserted()
        present = self._require_table()
        refill_until = newer[-1].number if lease is None and self._has_lost_its_state(present, newer) else 0
        steps = self._steps(context, lease, newer, present)
        inserted = self._advance(Inserts(self, context, present), refill_until).run(lease, steps)
        failpoint("merge.published")
        return inserted

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Inserted:
        """Inserts what is missing of these batches (append), or the newest version of their keys (upserts)."""
        lease = self.store.lease()
        state = lease.committed if lease else None
        if lease is None or state is None or lease.left_behind or state.batch_number < committed.batch_number:
            raise CommitFailed("a batch is under way: replay after it is committed", where=self.where)
        present = self._require_table()
        inserts = Inserts(self, context, present)
        advance = self._advance(inserts)
        held = advance.take(lease, None)
        done = inserts.replay(held, committed.batch_number, batches)
        advance.free(held)
        return done

    def _steps(
        self, context: MergeContext, lease: Lease | None, newer: Sequence[LandedBatch], present: Present
    ) -> list[Step]:
        """What is to be done: first what another run has left behind, as it was begun, then the rest."""
        try:
            begun = left_behind(lease, newer, self.where)
        except LineageBroken:
            if lease and any(b.batch.commit_id == lease.commit_id for b in context.intermediate.landed().batches):
                raise CommitFailed(f"batch {lease.batch} is under way in another run", where=self.where) from None
            raise
        rest = newer[len(begun.batches) :] if begun else newer
        found = window.windows(self.server, self.layout.path, present)
        steps = [begun] if begun else []
        if rest:
            most, landed = min(w.chunks for w in found), Landed.of(rest, context.intermediate)
            rows = chunk_rows(landed, self.table.chunk_rows, parallelism(context.spark), most)
            steps += cut(rest, rows, most)
        for each in found:
            each.check(max(len(step.chunks) for step in steps))
        return steps

    def _has_lost_its_state(self, present: Present, newer: Sequence[LandedBatch]) -> bool:
        """Whether the table has records of these topics but no lease: KeeperMap was emptied or replaced."""
        if self.table.mode != "append" or not present.rows:
            return False
        topics = sorted({tp.topic for b in newer for tp in b.batch.ranges})
        sql = render("clickhouse", "some_records", table=self.layout.path)
        if not self.server.rows(sql, {"topics": topics}):
            return False
        _LOG.warning(
            "%s: the table has rows of %s and %s (keeper_path %s) knows nothing of it: the state was emptied, or "
            "`keeper_path` or `state_table` is another one. Only records that are missing are inserted. Fix: stop the "
            "run and name the state as it was, if there still is one",
            self.where,
            ", ".join(topics),
            ".".join(self.store.table),
            self.server.connection.keeper_path,
        )
        return True

    def _advance(self, inserts: Inserts, refill_until: int = 0) -> Advance:
        return Advance(
            store=self.store,
            where=self.where,
            run_id=inserts.context.run_id,
            endpoints=self.endpoints,
            table_id=inserts.present.id,
            stop_older=self.stop_older,
            insert=inserts.of_step,
            refill_until=refill_until,
        )

    @property
    def query_prefix(self) -> str:
        """What the ids of this table's inserts begin with; after it comes the owner's epoch."""
        return f"batchmerge-{hashlib.sha256(self.store.name.encode()).hexdigest()[:16]}-"

    def stop_older(self, held: Lease) -> None:
        """Stops inserts that passed the fence before the lease was taken over."""
        sql = render(
            "clickhouse",
            "queries_kill",
            cluster=self.layout.cluster,
            prefix=self.query_prefix,
            own=f"{self.query_prefix}{held.epoch}-",
        )
        retried(lambda: self.server.execute(sql))

    def _require_table(self) -> Present:
        present = tables.describe(self.server, self.layout.path)
        if present is None:
            raise TableReplaced("the table is gone", where=self.where, remedy="restore it, then run again")
        return present

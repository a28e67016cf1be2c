"""One table on one endpoint: its lease, and the inserts of batches and replays into it."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from jobs.batch import CommittedState, LandedBatch
from jobs.changes.columns import CHANGES, ROWS
from jobs.changes.files import LandedFiles
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.reduction import Reduction
from jobs.changes.routing import route_filter
from jobs.destinations.base import MergeContext
from jobs.destinations.clickhouse import tables, window
from jobs.destinations.clickhouse.advance import Advance
from jobs.destinations.clickhouse.checks import check_continues, check_endpoints, check_table
from jobs.destinations.clickhouse.held import held_columns
from jobs.destinations.clickhouse.insertion import Inserted, Insertion, Only
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.landed_slices import LandedSlices, RowShape
from jobs.destinations.clickhouse.lease import Lease
from jobs.destinations.clickhouse.revised import RevisedRows
from jobs.destinations.clickhouse.rows import NewestRows
from jobs.destinations.clickhouse.side_table import SideTable
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.steps import Chunk, Step, cut, left_behind
from jobs.destinations.clickhouse.tables import Layout, Present
from jobs.destinations.refusal import Refusal, check_limits
from jobs.failpoints import failpoint
from jobs.spec.columns import RowColumn
from jobs.spec.pipeline import PipelineSpec
from resources.clickhouse import ClickHouseServer, retried
from resources.errors import CommitFailed, LineageBroken, TableReplaced
from sql import render

_LOG = logging.getLogger("batchmerge")

# One insert is one block, so that it is one part a table partition; and nothing of it goes on in the background.
_INSERT = {
    "async_insert": 0,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "max_insert_threads": 1,
    "min_insert_block_size_rows": 1_000_000_000,
    "min_insert_block_size_bytes": 0,
    "max_partitions_per_insert_block": window.MOST_PARTITIONS,
    "input_format_null_as_default": 1,
    "short_circuit_function_evaluation": "force_enable",
    "wait_end_of_query": 1,
    "log_queries": 1,
}


def comment(pipeline: str, run_id: str) -> str:
    """What ClickHouse's query log says of our inserts."""
    return json.dumps({"pipeline": pipeline, "run": run_id})


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
        return Statements(self.layout, self.store.table, len(self.endpoints))

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
    def letters(self) -> SideTable:
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
        inserted = self._advance(context, present, refill_until).run(lease, steps)
        failpoint("merge.published")
        return inserted

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Inserted:
        """Inserts what is missing of these batches (append), or the newest version of their keys (upserts)."""
        lease = self.store.lease()
        state = lease.committed if lease else None
        if lease is None or state is None or lease.left_behind or state.batch_number < committed.batch_number:
            raise CommitFailed("a batch is under way: replay after it is committed", where=self.where)
        present = self._require_table()
        advance = self._advance(context, present)
        held = advance.take(lease, None)
        done = self._insert_again(context, present, held, committed.batch_number, batches)
        advance.free(held)
        return done

    def _insert_again(
        self, context: MergeContext, present: Present, held: Lease, until: int, batches: Sequence[LandedBatch]
    ) -> Inserted:
        """What is missing of these batches (append), or of their keys the newest row up to the batch `until`."""
        # What was refused of them is judged anew.
        known = self.letters.attempts(batches[0].number, batches[-1].number)
        token = f"replay-{uuid.uuid4().hex}"
        if self.table.mode == "append":
            return self._insert_missing(context, present, held, token, until, batches, known)
        count = 1 + sum(b.counts.landed for b in batches) // self.table.chunk_rows
        chunks = [Chunk(str(n), batches[0].number, batches[-1].number, {}) for n in range(count)]
        wanted = Reduction.of_replay(self.spec, self.table, self.rows, context.intermediate, until, batches)
        rows = NewestRows(context.spark, wanted, self.order_by, until if wanted.revised else None)
        insertion = self._insertion(context, held, batches, chunks, token, present)
        done = rows.insert(insertion, self.where)
        judged = insertion.refusal.attempt
        self.letters.forget(batches[0].number, batches[-1].number, known, newest_by=judged)
        return done

    def _insert_missing(
        self,
        context: MergeContext,
        present: Present,
        held: Lease,
        token: str,
        until: int,
        batches: Sequence[LandedBatch],
        known: Sequence[str],
    ) -> Inserted:
        """The newest readings first, so that of a record that is missing the newest one is inserted."""
        done = Inserted()
        landed = [b for b in context.intermediate.landed().batches if b.number <= until]
        for revising in reversed([b for b in landed if b.batch.revises is not None]):
            part = RevisedRows(context, self._taken(revising, context, revising.number), landed, revising, batches)
            chunks = part.chunks(self.table.chunk_rows)
            if chunks:
                insertion = self._insertion(context, held, batches, chunks, token, present, Only.RECORD)
                slices = LandedSlices(context.spark, part.files, self._shape)
                done += slices.insert(insertion, self.where)
        first_readings = [b for b in batches if b.batch.revises is None]
        if first_readings:
            steps = cut(first_readings, self.table.chunk_rows, most_chunks=1)
            chunks = [chunk for step in steps for chunk in step.chunks]
            insertion = self._insertion(context, held, first_readings, chunks, token, present, Only.RECORD)
            done += self._rows(context, first_readings).insert(insertion, self.where)
            self.letters.forget(batches[0].number, batches[-1].number, known)
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
        steps = cut(rest, self.table.chunk_rows, min(w.chunks for w in found))
        steps = [begun, *steps] if begun else steps
        for each in found:
            each.check(max(len(step.chunks) for step in steps))
        return steps

    def _has_lost_its_state(self, present: Present, newer: Sequence[LandedBatch]) -> bool:
        """The table has records of these topics and no lease: KeeperMap was emptied, or is another one."""
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

    def _advance(self, context: MergeContext, present: Present, refill_until: int = 0) -> Advance:
        return Advance(
            store=self.store,
            where=self.where,
            run_id=context.run_id,
            endpoints=self.endpoints,
            table_id=present.id,
            stop_older=self.stop_older,
            insert=partial(self._insert, context, present),
            refill_until=refill_until,
        )

    def _insert(self, context: MergeContext, present: Present, held: Lease, step: Step, only: Only) -> Inserted:
        if step.revises:
            return self._insert_again(context, present, held, step.last, step.batches)
        insertion = self._insertion(context, held, step.batches, step.chunks, held.token, present, only, step.last)
        # What an earlier attempt at this step has refused, this one judges anew.
        known = () if only is Only.ALL else self.letters.attempts(step.first, step.last)
        inserted = self._rows(context, step.batches).insert(insertion, self.where)
        check_limits(self.spec, self.where, inserted.refused, inserted.rows + inserted.refused, len(step.batches))
        self.letters.forget(step.first, step.last, known)
        return inserted

    def _rows(self, context: MergeContext, batches: Sequence[LandedBatch]) -> LandedSlices:
        """All rows of these batches that the table takes, as they were read first."""
        files = PlannedFiles.of(self._taken(batches[-1], context), batches)
        return LandedSlices(context.spark, files, self._shape)

    def _taken(self, newest: LandedBatch, context: MergeContext, revision: int | None = None) -> LandedFiles:
        files = LandedFiles.up_to(newest, context.intermediate)
        operations = CHANGES if self.table.mode == "upsert_delete" else ROWS
        return replace(files.taking(operations, route_filter(self.spec, self.table)), revision=revision)

    @property
    def _shape(self) -> RowShape:
        return RowShape(self.rows, self.order_by, self.table.mode == "upsert_delete")

    def _insertion(
        self,
        context: MergeContext,
        held: Lease,
        batches: Sequence[LandedBatch],
        chunks: Sequence[Chunk],
        token: str,
        present: Present,
        only: Only = Only.ALL,
        step: int = 0,
    ) -> Insertion:
        """What a task needs; `step` is the number by which its rows are known, 0 for none."""
        appends = self.table.mode == "append"
        origin = appends and set(self.layout.origin) <= set(present.types)
        fence = {"lease": self.store.name, "owner": held.owner}
        shard = {"shards": len(self.endpoints), "shard": self.number - 1}
        return Insertion(
            server=self.server,
            sql=self.statements.insert(only if appends else Only.ALL, origin),
            coordinates=appends,
            columns=self.layout.columns,
            wire=tuple(self.statements.wire),
            parameters={**fence, **(shard if len(self.endpoints) > 1 else {}), **({"step": step} if origin else {})},
            settings={
                **_INSERT,
                **({"insert_allow_materialized_columns": 1} if origin else {}),
                "max_execution_time": self.server.connection.statement_timeout_seconds,
                "log_comment": comment(self.pipeline, context.run_id),
            },
            chunks=tuple(chunks),
            token_prefix=f"{self.pipeline}/{self.table.table}/{token}",
            query_prefix=f"{self.query_prefix}{held.epoch}-",
            refusal=Refusal(
                where=self.where,
                columns=held_columns(self.spec, self.table),
                on_bad_record=self.spec.on_bad_record,
                out_of_range=self.table.out_of_range,
                attempt=uuid.uuid4().hex,
                topic_ids={topic: id_ for b in batches for topic, id_ in b.batch.topic_ids.items()},
            ),
            letters_sql=self.statements.insert_letters(),
            fit_sql=self.statements.fits(),
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

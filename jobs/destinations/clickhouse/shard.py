"""One table on one endpoint: its lease, and the inserts of batches and replays into it."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jobs.batch import CommittedState, LandedBatch
from jobs.changes.columns import CHANGES, ROWS, RowColumn
from jobs.changes.files import LandedFiles
from jobs.changes.reduction import Reduction
from jobs.changes.routing import route_filter
from jobs.destinations.base import MergeContext
from jobs.destinations.clickhouse import tables, window
from jobs.destinations.clickhouse.advance import Advance, Inserted
from jobs.destinations.clickhouse.checks import check_continues, check_endpoints, check_table
from jobs.destinations.clickhouse.chunks import Chunk, count, cut
from jobs.destinations.clickhouse.dead_letters import DeadLetters
from jobs.destinations.clickhouse.insertion import Insertion
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.landed_slices import LandedSlices, RowShape
from jobs.destinations.clickhouse.lease import Lease
from jobs.destinations.clickhouse.rows import NewestRows
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.tables import Layout, Present
from jobs.destinations.clickhouse.transitions import Span
from jobs.failpoints import failpoint
from jobs.offsets import TopicPartition
from jobs.spec.pipeline import PipelineSpec
from resources.clickhouse import ClickHouseServer, retried
from resources.errors import CommitFailed, TableReplaced
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

    def has_dead_letters(self) -> bool:
        """The table for rows that do not fit is there: a run has made it."""
        return tables.describe(self.server, self.statements.dead_letters) is not None

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
        rows = lease.chunk_rows if lease and lease.left_behind else self.table.chunk_rows
        window.check_window(self.server, self.layout.path, present, max(count(b.batch, rows) for b in newer))
        inserted = self._advance(context, present).run(lease, newer)
        if inserted.dead:
            _LOG.warning("%s: %d dead letters in %s", self.where, inserted.dead, ".".join(self.statements.dead_letters))
        failpoint("merge.published")
        return inserted

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Inserted:
        """Inserts what is missing of these batches (append), or the newest version of their keys (upserts)."""
        lease = self.store.lease()
        state = lease.committed if lease else None
        if lease is None or state is None or lease.left_behind or state.batch_number < committed.batch_number:
            raise CommitFailed("a batch is under way: replay after it is committed", where=self.where)
        advance = self._advance(context, self._require_table())
        held = advance.take(lease, None)
        suffix = f"/replay-{uuid.uuid4().hex}"
        done = Inserted()
        newest = next(b for b in context.intermediate.landed()[0] if b.number == committed.batch_number)
        if self.table.mode == "append":
            for landed in batches:
                rows, chunks = self._pieces(context, landed), self._chunks([landed])
                done += self._insert_rows(context, held, rows, chunks, landed, True, suffix)
        else:
            touched = (batches[0].number, batches[-1].number)
            since = [b for b in context.intermediate.landed()[0] if touched[0] <= b.number <= committed.batch_number]
            newest_rows = self._newest(context, newest, touched)
            done += self._insert_rows(context, held, newest_rows, self._chunks(since), newest, False, suffix)
        advance.free(held)
        return done

    def _chunks(self, landed: Sequence[LandedBatch]) -> list[Chunk]:
        """Chunks over all offsets of adjoining batches."""
        spans: dict[TopicPartition, Span] = {}
        for batch in landed:
            for tp, piece in batch.batch.ranges.items():
                if len(piece):
                    first = spans[tp].first if tp in spans else piece.start
                    spans[tp] = Span(first, piece.end - 1)
        return [chunk for tp, span in sorted(spans.items()) for chunk in cut(tp, span, self.table.chunk_rows)]

    def _advance(self, context: MergeContext, present: Present) -> Advance:
        def insert(held: Lease, landed: LandedBatch, chunks: list[Chunk], recovering: bool) -> Inserted:
            # Only rows that are told apart by their coordinates can be looked up.
            missing = recovering and self.table.mode == "append"
            return self._insert_rows(context, held, self._pieces(context, landed), chunks, landed, missing)

        return Advance(
            store=self.store,
            where=self.where,
            run_id=context.run_id,
            chunk_rows=self.table.chunk_rows,
            endpoints=self.endpoints,
            table_id=present.id,
            stop_older=self.stop_older,
            insert=insert,
        )

    def _pieces(self, context: MergeContext, landed: LandedBatch) -> LandedSlices:
        """All rows of a batch that the table takes."""
        deletes = self.table.mode == "upsert_delete"
        files = LandedFiles.up_to(landed, context.intermediate)
        wanted = files.taking(CHANGES if deletes else ROWS, route_filter(self.spec, self.table))
        return LandedSlices(context.spark, wanted, landed.number, RowShape(self.rows, self.order_by, deletes))

    def _newest(self, context: MergeContext, newest: LandedBatch, touched: tuple[int, int]) -> NewestRows:
        wanted = Reduction(
            table=context.intermediate.path,
            snapshot=context.intermediate.snapshot_with(newest),
            first=touched[0],
            last=newest.number,
            mode=self.table.mode,
            columns=self.rows,
            keys=tuple(c.name for c in self.rows if c.is_key),
            order_by=self.order_by.name if self.order_by else None,
            route=route_filter(self.spec, self.table),
            touched=touched,
        )
        return NewestRows(context.spark, wanted, self.order_by)

    def _insert_rows(
        self,
        context: MergeContext,
        held: Lease,
        rows: LandedSlices | NewestRows,
        chunks: Sequence[Chunk],
        landed: LandedBatch,
        missing: bool,
        suffix: str = "",
    ) -> Inserted:
        fence = {"lease": self.store.name, "owner": held.owner}
        shard = {"shards": len(self.endpoints), "shard": self.number - 1}
        insertion = Insertion(
            server=self.server,
            sql=self.statements.insert(missing=False),
            missing_sql=self.statements.insert(missing=True) if missing else None,
            columns=self.layout.columns,
            wire=tuple(self.statements.wire),
            parameters={**fence, **(shard if len(self.endpoints) > 1 else {})},
            settings={
                **_INSERT,
                "max_execution_time": self.server.connection.statement_timeout_seconds,
                "log_comment": comment(self.pipeline, context.run_id),
            },
            chunks=tuple(chunks),
            token_prefix=f"{self.pipeline}/{self.table.table}/{landed.batch.commit_id}",
            token_suffix=suffix,
            query_prefix=f"{self.query_prefix}{held.epoch}-",
            empty_collections=self.table.null_collections == "empty",
            dead_letters=DeadLetters(
                self.statements.insert_dead_letters(), self.spec.on_bad_record == "fail", self.where
            ),
            fit_sql=self.statements.fits(),
        )
        return rows.insert(insertion, self.where)

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

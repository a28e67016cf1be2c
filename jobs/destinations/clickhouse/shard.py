"""One table on one endpoint: its schema, its lease, and the inserts of batches and replays into it."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.base import Work
from jobs.destinations.clickhouse import tables, window
from jobs.destinations.clickhouse.advance import Advance, Inserted
from jobs.destinations.clickhouse.chunks import Chunk, count, cut
from jobs.destinations.clickhouse.dead_letters import DeadLetters
from jobs.destinations.clickhouse.insertion import BATCH, DELETED, ORDER, POSITION, Insertion
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.lease import Lease
from jobs.destinations.clickhouse.rows import LandedRows
from jobs.destinations.clickhouse.tables import Layout, Present
from jobs.destinations.clickhouse.transitions import Span
from jobs.failpoints import reached
from jobs.landing.columns import RowColumn
from jobs.offsets import TopicPartition
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import ClickHouseTable
from resources.clickhouse import LEASE_LOST, ClickHouseServer, retried
from resources.errors import CommitFailed, ConfigurationError, TableReplaced
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
        order_by: the column that orders the changes to one key.
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

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(self.server.connection.endpoints)

    def committed(self) -> CommittedState | None:
        lease = self.store.lease()
        if lease is None:
            return None
        self._check_endpoints(lease)
        if lease.state:
            self._check_table(lease, tables.describe(self.server, self.layout.path))
        return lease.committed

    def prepare(self, dry_run: bool) -> list[str]:
        lease = self.store.lease()
        if lease:
            self._check_endpoints(lease)
        present = tables.describe(self.server, self.layout.path)
        if lease and lease.state:
            self._check_table(lease, present)
        if not dry_run:
            self.store.prepare()
        if present:
            return self._follow(present, dry_run)
        if not self.table.create:
            raise ConfigurationError(
                "the table does not exist and `create` is false", where=self.where, remedy="create it, or allow it here"
            )
        if not dry_run:
            tables.create(self.server, self.layout)
            self._create_dead_letters()
        return [f"create {self.where}: {self.layout.engine}, ordered by {', '.join(self.layout.order_by)}"]

    def _follow(self, present: Present, dry_run: bool) -> list[str]:
        moving = present.partition_columns - set(self.layout.keys)
        if self.layout.versioned and moving:
            raise ConfigurationError(
                f"the table is partitioned by {', '.join(sorted(moving))}, which may change while the key stays",
                where=self.where,
                remedy="partition by key columns only, or use the mode append",
            )
        changes = tables.plan_changes(self.server, self.layout, present)
        if not dry_run:
            tables.apply_changes(self.server, self.layout, changes)
            self._create_dead_letters()
        return [f"{self.where}: {change}" for change in changes]

    def _create_dead_letters(self) -> None:
        replicated = "Replicated" in self.layout.engine
        self.server.execute(
            render(
                "clickhouse",
                "dead_letters_create",
                table=self._dead_letters,
                cluster=self.layout.cluster,
                engine="ReplicatedMergeTree" if replicated else "MergeTree",
                window=("replicated" if replicated else "non_replicated") + "_deduplication_window",
            )
        )

    @property
    def _dead_letters(self) -> tuple[str, ...]:
        return self.layout.path[0], f"{self.layout.path[1]}__dead_letters"

    def merge(self, work: Work, committed: CommittedState | None, batches: Sequence[LandedBatch]) -> Inserted:
        """Applies those of these batches that this shard does not have yet."""
        lease = self.store.lease()
        reached("merge.begun")
        state = lease.committed if lease else None
        if (committed.batch_number if committed else 0) > (state.batch_number if state else 0):
            raise CommitFailed("the state has gone back since it was read", where=self.where)
        newer = [b for b in batches if state is None or b.number > state.batch_number]
        self._check_continues(state, committed, batches, newer)
        if not newer:
            return Inserted()
        present = self._require_table()
        rows = lease.chunk_rows if lease and lease.left_behind else self.table.chunk_rows
        window.check_window(self.server, self.layout.path, present, max(count(b.batch, rows) for b in newer))
        inserted = self._advance(work, present).run(lease, newer)
        if inserted.dead:
            _LOG.warning("%s: %d dead letters in %s", self.where, inserted.dead, ".".join(self._dead_letters))
        reached("merge.published")
        return inserted

    def replay(self, work: Work, committed: CommittedState, batches: Sequence[LandedBatch]) -> Inserted:
        """Inserts what is missing of these batches (append), or the newest version of their keys (upserts)."""
        lease = self.store.lease()
        state = lease.committed if lease else None
        if lease is None or state is None or lease.left_behind or state.batch_number < committed.batch_number:
            raise CommitFailed("a batch is under way: replay after it is committed", where=self.where)
        advance = self._advance(work, self._require_table())
        held = advance.take(lease, None)
        suffix = f"/replay-{uuid.uuid4().hex}"
        done = Inserted()
        newest = next(b for b in work.intermediate.landed()[0] if b.number == committed.batch_number)
        if self.table.mode == "append":
            for landed in batches:
                rows = self._landed(work, landed.number, landed.number, landed.snapshot_id)
                done += self._insert_rows(work, held, rows, self._chunks([landed]), landed, True, suffix)
        else:
            touched = (batches[0].number, batches[-1].number)
            rows = self._landed(work, batches[0].number, committed.batch_number, newest.snapshot_id, touched)
            since = [b for b in work.intermediate.landed()[0] if touched[0] <= b.number <= committed.batch_number]
            done += self._insert_rows(work, held, rows, self._chunks(since), newest, False, suffix)
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

    def _advance(self, work: Work, present: Present) -> Advance:
        def insert(held: Lease, landed: LandedBatch, chunks: list[Chunk], recovering: bool) -> Inserted:
            rows = self._landed(work, landed.number, landed.number, landed.snapshot_id)
            # Only rows that are told apart by their coordinates can be looked up.
            missing = recovering and self.table.mode == "append"
            return self._insert_rows(work, held, rows, chunks, landed, missing)

        return Advance(
            store=self.store,
            where=self.where,
            run_id=work.run_id,
            chunk_rows=self.table.chunk_rows,
            endpoints=self.endpoints,
            table_id=present.id,
            stop_older=self._stop_older,
            insert=insert,
        )

    def _landed(
        self, work: Work, first: int, last: int, snapshot: int, touched: tuple[int, int] | None = None
    ) -> LandedRows:
        keyed = self.table.mode != "append"
        return LandedRows(
            spark=work.spark,
            table=work.intermediate.path,
            snapshot=snapshot,
            first=first,
            last=last,
            mode=self.table.mode,
            columns=self.rows,
            keys=tuple(c.name for c in self.rows if c.is_key) if keyed else (),
            order_by=self.order_by if keyed else None,
            touched=touched,
        )

    def _insert_rows(
        self,
        work: Work,
        held: Lease,
        rows: LandedRows,
        chunks: Sequence[Chunk],
        landed: LandedBatch,
        missing: bool,
        suffix: str = "",
    ) -> Inserted:
        fence = {"lease": self.store.name, "owner": held.owner}
        shard = {"shards": len(self.endpoints), "shard": self.number - 1}
        insertion = Insertion(
            server=self.server,
            sql=self._insert_sql(False),
            missing_sql=self._insert_sql(True) if missing else None,
            columns=self.layout.columns,
            wire=tuple(self._wire),
            parameters={**fence, **(shard if len(self.endpoints) > 1 else {})},
            settings={
                **_INSERT,
                "max_execution_time": self.server.connection.statement_timeout_seconds,
                "log_comment": comment(self.pipeline, work.run_id),
            },
            chunks=tuple(chunks),
            token_prefix=f"{self.pipeline}/{self.table.table}/{landed.batch.commit_id}",
            token_suffix=suffix,
            query_prefix=f"{self._query_prefix}{held.epoch}-",
            empty_collections=self.table.null_collections == "empty",
            dead_letters=self._dead_letter_maker(),
            fit_sql=self._fit_sql,
        )
        return rows.insert(insertion, self.where)

    @property
    def _fit_sql(self) -> dict[str, tuple[str, str]]:
        """Per converted column: what to ask whether its values fit, and the type that they travel as."""
        return {
            c.name: (render("clickhouse", "does_fit", column=c), f"`{c.name}` {c.wire}")
            for c in self.layout.columns
            if c.declared
        }

    def _dead_letter_maker(self) -> DeadLetters:
        sql = render(
            "clickhouse",
            "dead_letters_insert",
            table=self._dead_letters,
            state_table=self.store.table,
            lease_lost=LEASE_LOST,
        )
        return DeadLetters(sql, self.spec.on_bad_record == "fail", self.where)

    @property
    def _wire(self) -> dict[str, str]:
        """Names and types of what is sent."""
        sent = {c.name: c.wire for c in self.layout.columns}
        if self.layout.versioned:
            sent |= {BATCH: "Int64", POSITION: "Int64"}
        if self.order_by and self.layout.versioned:
            sent |= {ORDER: "Int64"}
        if self.table.mode == "upsert_delete":
            sent |= {DELETED: "UInt8"}
        return sent

    def _insert_sql(self, missing: bool) -> str:
        by_name = {c.name: c for c in self.layout.columns}
        names = self.table.shard_by or self.layout.keys or ["_topic", "_partition"]
        return render(
            "clickhouse",
            "insert_rows",
            table=self.layout.path,
            columns=self.layout.columns,
            versioned=self.layout.versioned,
            ordered=self.layout.ordered,
            deletes=self.table.mode == "upsert_delete",
            structure=", ".join(f"`{name}` {kind}" for name, kind in self._wire.items()),
            state_table=self.store.table,
            lease_lost=LEASE_LOST,
            shard_by=[by_name[name] for name in names] if len(self.endpoints) > 1 else [],
            hash_function=self.table.hash_function,
            missing=missing,
        )

    @property
    def _query_prefix(self) -> str:
        """What the ids of this table's inserts begin with; after it comes the owner's epoch."""
        return f"batchmerge-{hashlib.sha256(self.store.name.encode()).hexdigest()[:16]}-"

    def _stop_older(self, held: Lease) -> None:
        """Stops inserts that passed the fence before the lease was taken over."""
        sql = render(
            "clickhouse",
            "queries_kill",
            cluster=self.layout.cluster,
            prefix=self._query_prefix,
            own=f"{self._query_prefix}{held.epoch}-",
        )
        retried(lambda: self.server.execute(sql))

    def _require_table(self) -> Present:
        present = tables.describe(self.server, self.layout.path)
        if present is None:
            raise TableReplaced("the table is gone", where=self.where, remedy="restore it, then run again")
        return present

    def _check_table(self, lease: Lease, present: Present | None) -> None:
        batch = lease.committed.batch_number if lease.committed else 0
        remedy = "restore the table, or rebuild it with `batchmerge replay --from-kafka`"
        if present is None:
            raise TableReplaced(f"the table is gone, batch {batch} was committed", where=self.where, remedy=remedy)
        if present.id != lease.table_id and not present.rows:
            raise TableReplaced(
                f"the table was dropped and recreated: it is empty, batch {batch} was committed",
                where=self.where,
                remedy=remedy,
            )

    def _check_endpoints(self, lease: Lease) -> None:
        """Where a row belongs follows from number and order of the endpoints, so they stay as they were."""
        renamed_only = len(lease.endpoints) == len(self.endpoints) == 1
        if lease.endpoints and lease.endpoints != self.endpoints and not renamed_only:
            raise ConfigurationError(
                f"rows were spread over {', '.join(lease.endpoints)}, and the connection now names "
                f"{', '.join(self.endpoints)}: rows of a key would be on two endpoints",
                where=self.where,
                remedy="name the endpoints as they were, in their order; for other ones start a new table (another "
                "name in `tables`) and let it be filled from the landed batches",
            )

    def _check_continues(
        self,
        state: CommittedState | None,
        committed: CommittedState | None,
        batches: Sequence[LandedBatch],
        newer: Sequence[LandedBatch],
    ) -> None:
        """What this shard has is where the caller planned from, or one of the batches after it."""
        known = {b.batch.commit_id for b in batches} | ({committed.commit_id} if committed else set())
        if state and state.commit_id not in known:
            raise CommitFailed(f"another run has committed batch {state.batch_number} meanwhile", where=self.where)
        expected = newer[0].batch.previous_commit_id if newer else None
        if state and newer and expected != state.commit_id:
            raise CommitFailed(f"batch {newer[0].number} does not follow batch {state.batch_number}", where=self.where)

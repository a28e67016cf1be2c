"""The inserts of one run into a table on one endpoint: the chunks of a step, or the missing rows of landed batches."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.batch import CommittedState, LandedBatch
from jobs.changes.columns import READINGS, operations
from jobs.changes.files import LandedFiles
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.reduction import Reductions, truncated_below
from jobs.changes.routing import route_filter
from jobs.destinations.clickhouse.checks import check_keeps_records
from jobs.destinations.clickhouse.insert_task import InsertCounts, InsertTask, Only
from jobs.destinations.clickhouse.inserted_rows import LandedSlices, NewestRows, RowShape
from jobs.destinations.clickhouse.limits import limited_columns
from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.revised import RevisedRows
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.spread import Question
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.steps import Chunk, Step, cut
from jobs.destinations.clickhouse.window import most_partitions
from jobs.destinations.merge_context import MergeContext
from jobs.destinations.outdated_dead_letters import OutdatedDeadLetters
from jobs.destinations.refusal import Refusal, check_limits
from jobs.failpoints import failpoint
from jobs.lineage import of_one_meaning
from resources.clickhouse_errors import retried

# Settings by which no part of a statement continues in the background.
_STATEMENT = {
    "async_insert": 0,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "distributed_foreground_insert": 1,
    "input_format_null_as_default": 1,
    "short_circuit_function_evaluation": "force_enable",
    "wait_end_of_query": 1,
    "log_queries": 1,
}

# Settings by which an insert is one block, so that it makes one part in each table partition.
_ONE_BLOCK = {
    "insert_deduplicate": 1,
    "max_insert_threads": 1,
    "min_insert_block_size_rows": 1_000_000_000,
    "min_insert_block_size_bytes": 0,
}


@dataclass(frozen=True)
class StepInserts:
    """The inserts of one run.

    Attributes:
        present: the table as it is.
    """

    shard: Shard
    context: MergeContext
    present: Present

    def of_step(self, held: Lease, step: Step, only: Only) -> InsertCounts:
        """Inserts the chunks of a step; as `only` says, without rows that are in the table already."""
        shard = self.shard
        inserted = self.replay(held, step.last, step.batches) if step.revises else self._chunks(held, step, only)
        below = CommittedState.after(step.batches[-1]).truncates(held.committed) if shard.table.loses_rows else None
        return inserted if below is None else inserted + self._truncate(held, below)

    def _chunks(self, held: Lease, step: Step, only: Only) -> InsertCounts:
        shard = self.shard
        if only is Only.RECORD:
            check_keeps_records(shard.where, shard.table, self.present)
        task = self._task(held, step.batches, step.chunks, uuid.uuid4().hex, only, step.last)
        # This attempt checks again the rows that earlier attempts at this step refused.
        known = () if only is Only.ALL else shard.dead_letters.attempts(step.first, step.last)
        inserted = self._rows(step.batches).insert(task)
        check_limits(shard.spec, shard.where, inserted.refused, inserted.rows + inserted.refused, len(step.batches))
        shard.dead_letters.forget(known, step.first, step.last)
        return inserted

    def replay(self, held: Lease, until: int, batches: Sequence[LandedBatch]) -> InsertCounts:
        """Inserts the missing rows of these batches (append), or the newest row, up to batch `until`, of their keys."""
        shard = self.shard
        wanted = Reductions(shard.spec, shard.table, shard.rows, self.context.intermediate).replay(until, batches)
        outdated = OutdatedDeadLetters.of(self.context, wanted, shard.dead_letters)
        attempt = uuid.uuid4().hex
        if shard.table.mode == "append":
            done = self._missing(held, until, batches, attempt)
        else:
            count = 1 + sum(b.counts.landed for b in batches) // shard.table.chunk_rows
            chunks = [Chunk(str(n), batches[0].number, batches[-1].number, {}) for n in range(count)]
            rows = NewestRows(self.context.spark, wanted, shard.order_by, until if wanted.revised else None)
            done = rows.insert(self._task(held, batches, chunks, attempt))
        failpoint("clickhouse.replayed")
        outdated.forget(attempt)
        return done

    def _missing(self, held: Lease, until: int, batches: Sequence[LandedBatch], attempt: str) -> InsertCounts:
        """Inserts only the newest reading of each record: if that is no row of this table, no older reading counts."""
        shard, landed = self.shard, self.context.intermediate.landed().batches
        known = [b for b in landed if b.number <= until]
        done, newer = InsertCounts(), tuple[PlannedFiles, ...]()
        for revising in reversed([b for b in of_one_meaning(known) if b.batch.revises is not None]):
            part = RevisedRows(self.context, self._files(revising, revising.number), known, revising, batches)
            chunks = part.chunks(shard.table.chunk_rows)
            if chunks:
                task = self._task(held, batches, chunks, attempt, Only.RECORD)
                slices = LandedSlices(self.context.spark, part.files, self._shape, newer)
                done += slices.insert(task)
            newer += (PlannedFiles.of(part.landed.taking(READINGS, None), [revising], []),)
        first_readings = [b for b in batches if b.batch.revises is None]
        if first_readings:
            steps = cut(first_readings, shard.table.chunk_rows, most_chunks=1)
            chunks = [chunk for step in steps for chunk in step.chunks]
            task = self._task(held, first_readings, chunks, attempt, Only.RECORD)
            done += replace(self._rows(first_readings), newer=newer).insert(task)
        return done

    def _truncate(self, held: Lease, below: int) -> InsertCounts:
        """Deletes the table's rows with a smaller `order_by` value; such changes were not inserted."""
        shard = self.shard
        given = {"lease": shard.store.name, "owner": held.owner, "below": below}
        failpoint("clickhouse.truncating")
        rows = shard.server.rows(shard.statements.truncated(), given)[0]["rows"]

        def apply() -> None:
            # No deduplication: a retry may insert the same block of deletes again.
            own = {"insert_deduplicate": 0, "query_id": shard.query_id(held)}
            shard.server.execute(shard.statements.truncate(), given, {**self._settings, **own})

        retried(apply)
        failpoint("clickhouse.truncated")
        return InsertCounts(rows, deletes=rows)

    def _rows(self, batches: Sequence[LandedBatch]) -> LandedSlices:
        """All rows of these batches for the table, as they were read first."""
        files = PlannedFiles.of(self._files(batches[-1]), batches, self._shape.paths)
        below = truncated_below(self.shard.spec, self.shard.table, batches[-1])
        return LandedSlices(self.context.spark, files, replace(self._shape, truncated_below=below))

    def _files(self, newest: LandedBatch, revision: int | None = None) -> LandedFiles:
        shard = self.shard
        files = LandedFiles.up_to(newest, self.context.intermediate)
        own = files.taking(operations(shard.table), route_filter(shard.spec, shard.table))
        return replace(own, revision=revision)

    @property
    def _shape(self) -> RowShape:
        shard = self.shard
        return RowShape(shard.rows, shard.order_by, shard.table.loses_rows)

    @property
    def _settings(self) -> dict[str, object]:
        connection = self.shard.server.connection
        return {
            **_STATEMENT,
            "max_partitions_per_insert_block": most_partitions(connection),
            "max_execution_time": connection.statement_timeout_seconds,
            "log_comment": json.dumps({"pipeline": self.shard.pipeline, "run": self.context.run_id}),
        }

    def _task(
        self,
        held: Lease,
        batches: Sequence[LandedBatch],
        chunks: Sequence[Chunk],
        attempt: str,
        only: Only = Only.ALL,
        step: int = 0,
    ) -> InsertTask:
        """What a task needs for its inserts.

        Args:
            attempt: the attempt that writes the dead letters.
            step: the number that marks the rows of the step that the lease names, by which a repeated insert is
                recognised; 0: of a replay, whose inserts are not.
        """
        shard = self.shard
        appends = shard.table.mode == "append"
        origin = shard.layout.has_origin(self.present.types)
        layout = shard.layout.there(self.present.types)
        statements = Statements(layout, shard.store.table)
        token = held.step if step else f"replay-{attempt}"
        fence = {"lease": shard.store.name, "owner": held.owner}
        endpoints = len(shard.endpoints)
        return InsertTask(
            server=shard.server,
            sql=statements.insert(only if appends else Only.ALL, origin),
            coordinates=only if appends else None,
            columns=layout.columns,
            wire=tuple(statements.wire),
            parameters={**fence, **({"step": step} if origin else {})},
            settings={**self._settings, **_ONE_BLOCK, **({"insert_allow_materialized_columns": 1} if origin else {})},
            chunks=tuple(chunks),
            token_prefix=f"{shard.pipeline}/{shard.table.table}/{token}",
            query_prefix=shard.query_prefix_of(held),
            refusal=Refusal(
                where=shard.where,
                columns=limited_columns(shard.spec, shard.table),
                on_bad_record=shard.spec.on_bad_record,
                out_of_range=shard.table.out_of_range,
                attempt=attempt,
                topic_ids={topic: id_ for b in batches for topic, id_ in b.batch.topic_ids.items()},
            ),
            dead_letters_sql=shard.statements.insert_dead_letters(),
            unfit=statements.unfit(shard.server),
            fits=statements.fits(shard.server),
            spread=shard.statements.spread(shard.server, shard.number - 1, endpoints) if endpoints > 1 else None,
            elsewhere=self._elsewhere() if appends and only is Only.RECORD else (),
        )

    def _elsewhere(self) -> tuple[Question, ...]:
        """The other endpoints: a record that was read again may be there, though its values now belong here."""
        there = [(other, other.present()) for other in self.shard.others]
        return tuple(
            other.statements.elsewhere(other.server, other.layout.has_origin(present.types))
            for other, present in there
            if present
        )

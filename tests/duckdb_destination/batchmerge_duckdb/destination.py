"""A destination table in a DuckDB file: Spark reduces landed changes, one transaction merges them with the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from batchmerge.jobs.batch import CommittedState, LandedBatch, MergeCounts
from batchmerge.jobs.changes.reduction import Reduction
from batchmerge.jobs.destinations.base import Destination
from batchmerge.jobs.destinations.merge_context import MergeContext, Merged
from batchmerge.jobs.destinations.requirements import require_empty
from batchmerge.jobs.destinations.stages import Stages
from batchmerge.jobs.destinations.takes import Takes, of_schema
from batchmerge.jobs.failpoints import failpoint
from batchmerge.jobs.only_writer import require_only_writer
from batchmerge.resources.spark import spark_errors
from batchmerge.sql import render
from pyspark.sql import SparkSession

from batchmerge_duckdb import prepare
from batchmerge_duckdb.database import database, transaction
from batchmerge_duckdb.kind import DIALECT, KIND
from batchmerge_duckdb.read import DuckDbReader
from batchmerge_duckdb.spec import DuckDbConnection, DuckDbTable
from batchmerge_duckdb.state import TableState


@dataclass(frozen=True)
class DuckDbDestination(Destination):
    """`kind: duckdb` of a pipeline file."""

    table: DuckDbTable
    connection: DuckDbConnection

    def state(self, db: duckdb.DuckDBPyConnection) -> TableState:
        return TableState(db, self.pipeline, self.table.table, self.name)

    def committed(self) -> CommittedState | None:
        if not self.connection.file.exists():
            return None
        with database(self.connection, self.name) as db:
            row = self.state(db).read()
        return row.committed if row else None

    def prepare(self, dry_run: bool = False) -> list[str]:
        if dry_run and not self.connection.file.exists():
            return [f"create {self.name}"]
        with transaction(self.connection, self.name) as db:
            state, wanted = self.state(db), prepare.schema(self.row_columns)
            row, present = state.read(), prepare.present_schema(db, self.table.table)
            if row is None:
                require_only_writer(self.pipeline, state.others(), self.name)
            changes = prepare.plan(self.name, self.table, self.row_columns, present, self.spec.ignore_case)
            said = [f"create {self.name}"] if present is None else [f"{self.name}: {change}" for change in changes]
            if dry_run:
                return said
            if present is None:
                prepare.create(db, self.table.table, wanted)
            prepare.apply(db, self.table.table, changes, wanted)
            if row is None or present is None:
                state.begin(db.table(self.table.table).shape[0] if self.table.mode == "append" else 0)
                self._prepare_tombstones(db, wanted)
        return said

    def takes(self, names: Collection[str]) -> Mapping[str, Takes]:
        if not self.connection.file.exists():
            return {}
        with database(self.connection, self.name) as db:
            return of_schema(prepare.present_schema(db, self.table.table), names)

    def _prepare_tombstones(self, db: duckdb.DuckDBPyConnection, columns: pa.Schema) -> None:
        if self.tombstones:
            order = columns.field(self.spec.changes.ordered_by).with_name("__order")
            keys = [columns.field(column.name) for column in self.row_columns if column.is_key]
            prepare.create(db, self.tombstones, pa.schema([*keys, order]))

    def merge(self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]) -> Merged:
        first, newest = batches[0].number, batches[-1]
        changes = Reduction.of_table(self.spec, self.table, self.row_columns, context.intermediate, first, newest)
        # Of a batch that revises others the table has rows already.
        missing = newest.batch.revises is not None
        return self._write(context, changes, committed, CommittedState.after(newest), missing)

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        landed, number = context.intermediate, committed.batch_number
        changes = Reduction.of_replay(self.spec, self.table, self.row_columns, landed, number, batches)
        return self._write(context, changes, committed, committed, missing=True)

    def _write(
        self,
        context: MergeContext,
        wanted: Reduction,
        before: CommittedState | None,
        after: CommittedState,
        missing: bool,
    ) -> Merged:
        clock = Stages()
        with spark_errors(self.name):
            changes = clock.time("read", lambda: wanted.rows(context.spark).toArrow())
        counts = clock.time("write", lambda: self._commit(changes, before, after, missing))
        failpoint("duckdb.committed")
        return Merged(counts, after.commit_id, clock.seconds)

    def _commit(
        self, changes: pa.Table, before: CommittedState | None, after: CommittedState, missing: bool
    ) -> MergeCounts:
        with transaction(self.connection, self.name) as db:
            db.register("changes", changes)
            counts = self._append(db, missing) if self.table.mode == "append" else self._merge(db, len(changes))
            below = after.truncates(before) if self.table.loses_rows else None
            if below is not None:
                (gone,) = db.execute(self._text("truncate"), {"below": below}).fetchone() or (0,)
                counts += MergeCounts(deleted=gone)
            failpoint("duckdb.written")
            self.state(db).move(before, after)
        return counts

    def _append(self, db: duckdb.DuckDBPyConnection, missing: bool) -> MergeCounts:
        (rows,) = db.execute(self._text("append", missing)).fetchone() or (0,)
        return MergeCounts(changes=rows, inserted=rows)

    def _merge(self, db: duckdb.DuckDBPyConnection, changes: int) -> MergeCounts:
        done = Counter(action for (action,) in db.execute(self._text("merge")).fetchall())
        if self.tombstones:
            db.execute(self._text("keep_tombstones"))
        return MergeCounts(changes, done["INSERT"], done["UPDATE"], done["DELETE"])

    def _text(self, template: str, missing: bool = False) -> str:
        return KIND.text(template, self.spec, self.table, self.tombstones, missing)

    def drop_state(self) -> bool:
        with transaction(self.connection, self.name) as db:
            state = self.state(db)
            present = state.table_id() is not None
            require_empty(db.table(self.table.table).shape[0] if present else None, self.name)
            return state.exists() and state.run("state_drop") == [(1,)]

    def hand_over(self, to: str) -> bool:
        with transaction(self.connection, self.name) as db:
            state = self.state(db)
            return state.exists() and state.run("state_hand_over", to=to) == [(1,)]

    def drop(self) -> bool:
        with transaction(self.connection, self.name) as db:
            present = self.state(db).table_id() is not None
            for table in filter(None, (self.table.table, self.tombstones)):
                db.execute(render(DIALECT, "drop", table=table.split(".")))
        return present

    def read(self, spark: SparkSession) -> DuckDbReader:
        del spark
        return DuckDbReader(self.row_columns, self.connection, self.table.table)

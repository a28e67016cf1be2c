"""A destination table in a DuckDB file: Spark reduces landed changes, one transaction merges them with the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from batchmerge.jobs.batch import CommittedState, MergeCounts
from batchmerge.jobs.destinations.merge_context import Merged
from batchmerge.jobs.destinations.reduced import ReducedDestination, Step
from batchmerge.jobs.destinations.requirements import require_empty, require_planned
from batchmerge.jobs.destinations.stages import Stages
from batchmerge.jobs.failpoints import failpoint
from batchmerge.jobs.only_writer import require_only_writer
from pyspark.sql import SparkSession

from batchmerge_duckdb.database import run, transaction
from batchmerge_duckdb.kind import KIND
from batchmerge_duckdb.prepare import create, follow, present_schema
from batchmerge_duckdb.read import DuckDbReader
from batchmerge_duckdb.spec import DuckDbConnection, DuckDbTable
from batchmerge_duckdb.state import TableState


@dataclass(frozen=True)
class DuckDbDestination(ReducedDestination):
    """`kind: duckdb` of a pipeline file."""

    table: DuckDbTable
    connection: DuckDbConnection

    def file(self, keep: bool = True) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        return transaction(self.connection, self.name, keep)

    def committed(self) -> CommittedState | None:
        with self.file(keep=False) as db:
            return TableState(db, self).committed()

    def present_schema(self) -> pa.Schema | None:
        with self.file(keep=False) as db:
            return present_schema(db, self.table.table)

    def prepare(self, dry_run: bool = False) -> list[str]:
        with self.file(keep=not dry_run) as db:
            state, present = TableState(db, self), present_schema(db, self.table.table)
            is_new = not state.run("state_read")
            if is_new:
                require_only_writer(self.pipeline, [pipeline for (pipeline,) in state.run("state_others")], self.name)
            state.committed()
            changes = self.evolution(present)
            if present is None:
                create(db, self.table.table, self.row_schema)
            else:
                follow(db, self.table.table, present, self.row_schema, changes)
            if is_new or present is None:
                state.begin()
                if self.kept_deletes:
                    create(db, self.kept_deletes, self.kept_deletes_schema)
            else:
                state.go_on()
        return [f"create {self.name}"] if present is None else [f"{self.name}: {change}" for change in changes]

    def apply(self, step: Step) -> Merged:
        clock = Stages()
        changes = clock.time("read", step.changes)
        counts = clock.time("write", lambda: self._commit(step, changes))
        failpoint("duckdb.committed")
        return Merged(counts, step.after.commit_id, clock.seconds)

    def _commit(self, step: Step, changes: pa.Table) -> MergeCounts:
        with self.file() as db:
            db.register("changes", changes)
            if self.kept_deletes and step.means_other:
                create(db, self.kept_deletes, self.kept_deletes_schema)
            counts = self._append(db, step) if self.table.mode == "append" else self._merge(db, len(changes))
            if step.truncated_below is not None:
                ((gone,),) = self._run(db, "truncate", below=step.truncated_below)
                counts += MergeCounts(deleted=gone)
            failpoint("duckdb.written")
            TableState(db, self).move(step.before, step.after)
        return counts

    def _append(self, db: duckdb.DuckDBPyConnection, step: Step) -> MergeCounts:
        ((rows,),) = self._run(db, "append_missing" if step.again else "append")
        return MergeCounts(changes=rows, inserted=rows)

    def _merge(self, db: duckdb.DuckDBPyConnection, changes: int) -> MergeCounts:
        done = Counter(action for (action,) in self._run(db, "merge"))
        if self.kept_deletes:
            self._run(db, "keep_deletes")
        return MergeCounts(changes, done["INSERT"], done["UPDATE"], done["DELETE"])

    def _run(self, db: duckdb.DuckDBPyConnection, template: str, **values: object) -> list[tuple[Any, ...]]:
        return db.execute(KIND.text(template, self.spec, self.table), values).fetchall()

    def drop_state(self) -> bool:
        with self.file() as db:
            state = TableState(db, self)
            require_empty(state.count(), self.name)
            return state.run("state_drop") == [(1,)]

    def hand_over(self, to: str, at: CommittedState | None) -> bool:
        with self.file() as db:
            state = TableState(db, self)
            require_planned(state.committed(), at, self.name)
            return state.run("state_hand_over", to=to) == [(1,)]

    def drop(self) -> bool:
        with self.file() as db:
            present = TableState(db, self).table_id() is not None
            for table in filter(None, (self.table.table, self.kept_deletes)):
                run(db, "drop", table)
        return present

    def read(self, session: Callable[[], SparkSession]) -> DuckDbReader:
        del session
        return DuckDbReader(self)

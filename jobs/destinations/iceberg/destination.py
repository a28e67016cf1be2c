"""A destination table in Iceberg: one branch per attempt, one conditional commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from jobs.batch import PREFIX, CommittedState, LandedBatch, MergeCounts
from jobs.changes.columns import RowColumn
from jobs.changes.reduction import Reduction
from jobs.changes.routing import route_filter
from jobs.changes.unchanged_columns import may_keep
from jobs.destinations.base import Destination, MergeContext, Merged, Transaction
from jobs.destinations.iceberg.columns import table_columns
from jobs.destinations.iceberg.maintain import maintain
from jobs.destinations.iceberg.merge import Changes
from jobs.destinations.iceberg.read import IcebergReader, branch_path
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.iceberg.state import commit_reference, committed_state
from jobs.destinations.iceberg.transaction import CatalogTransaction
from jobs.destinations.stages import Stages
from jobs.evolution import plan_evolution
from jobs.failpoints import failpoint
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.history import state_properties
from jobs.iceberg.schema import apply_changes, arrow_schema, iceberg_schema, partition_spec, sort_order
from jobs.landing.intermediate import IntermediateTable
from jobs.landing.landing_table import LandingTable
from jobs.maintenance.report import Done
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog
from resources.spark import spark_errors
from sql import render

_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "write.parquet.compression-codec": "zstd",
}
# A copy-on-write merge writes whole files again, sorted by key: so many bytes for a cluster of keys, however large the
# table is. (Measured by tests/benchmarks/iceberg.py. The second is of rows in memory, before they are compressed.)
_SMALL_FILES = {
    "write.target-file-size-bytes": str(64 * 1024 * 1024),
    "write.spark.advisory-partition-size-bytes": str(32 * 1024 * 1024),
}
_WRITE_MODES = {"copy_on_write": "copy-on-write", "merge_on_read": "merge-on-read"}


@dataclass(frozen=True)
class IcebergDestination(Destination):
    """`kind: iceberg` of a pipeline file."""

    table: IcebergTable
    catalog: IcebergCatalog

    @cached_property
    def columns(self) -> list[RowColumn]:
        return table_columns(self.spec, self.table)

    def committed(self) -> CommittedState | None:
        return committed_state(self._load(), self.pipeline, self.table)

    def _load(self) -> Table | None:
        return self.catalog.load(self.table.table)

    def drop_state(self) -> bool:
        if self._load() is not None:
            raise ConfigurationError(
                "the table carries its committed state itself",
                where=self.name,
                remedy="drop the table, if it is to be filled anew: its state goes with it",
            )
        return False

    def drop(self) -> bool:
        return self.catalog.drop(self.table.table)

    def prepare(self, dry_run: bool = False) -> list[str]:
        columns = self.columns
        wanted = pa.schema([pa.field(c.name, c.type, c.nullable) for c in columns])
        found = self.catalog.load(self.table.table)
        self._check_format(str(found.format_version) if found else self.table.properties.get("format-version", "2"))
        if found is not None:
            changes = plan_evolution(self.name, arrow_schema(found), wanted, self.table.evolve, self.spec.ignore_case)
            if not dry_run:
                apply_changes(found, changes)
            return [*(f"{self.name}: {change}" for change in changes), *self._prepare_tombstones(columns, dry_run)]
        if not self.table.create:
            raise ConfigurationError(
                "the table does not exist and `create` is false", where=self.name, remedy="create it, or allow it here"
            )
        keys = [c.name for c in columns if c.is_key and not c.nullable]
        schema = iceberg_schema(wanted, keys if self.table.needs_key else ())
        spec = partition_spec(schema, self.table.partition_by, self.name)
        sort = sort_order(schema, self._sort_by, self.name)
        if not dry_run:
            mode = _WRITE_MODES[self.table.write]
            modes = {f"write.{operation}.mode": mode for operation in ("merge", "update", "delete")}
            usual = {**_PROPERTIES, **modes, **(_SMALL_FILES if self.table.needs_key else {})}
            self.catalog.create(self.table.table, schema, spec, {**usual, **self.table.properties}, sort)
        layout = f" partitioned by {', '.join(self.table.partition_by)}" if spec.fields else ""
        return [f"create {self.name}{layout}", *self._prepare_tombstones(columns, dry_run)]

    @property
    def _sort_by(self) -> list[str]:
        if self.table.sort_by is not None:
            return self.table.sort_by
        key = self.spec.changes.key
        return list(key.columns) if key and self.table.needs_key else []

    def _check_format(self, version: str) -> None:
        """Tables of version 3 can be read, but not committed, by pyiceberg (tried with 0.12)."""
        if version not in ("1", "2"):
            raise ConfigurationError(
                f"the table's format version is {version}, which cannot be committed yet",
                where=self.name,
                remedy="use a table of format version 2 (`properties: {format-version: '2'}`)",
            )

    def _prepare_tombstones(self, columns: list[RowColumn], dry_run: bool) -> list[str]:
        if not self.tombstones:
            return []
        order = next(c for c in columns if c.name == self.spec.changes.ordered_by)
        kept = pa.schema([pa.field(c.name, c.type) for c in columns if c.is_key] + [pa.field("__order", order.type)])
        found = self.catalog.load(self.tombstones)
        if found is not None:
            changes = plan_evolution(
                self.tombstones, arrow_schema(found), kept, self.table.evolve, self.spec.ignore_case
            )
            if not dry_run:
                apply_changes(found, changes)
            return [f"{self.tombstones}: {change}" for change in changes]
        if not dry_run:
            self.catalog.create(self.tombstones, iceberg_schema(kept), properties=_PROPERTIES)
        return [f"create {self.tombstones} for the order of deletes"]

    def merge(self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]) -> Merged:
        state = CommittedState.after(batches[-1])
        snapshot = context.intermediate.snapshot_with(batches[-1])
        changes = self._changes(context, batches[0].number, batches[-1].number, snapshot)
        if self.table.mode == "append":
            return self._append(context, committed, state, changes)
        return self._merge(context, committed, state, changes)

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        newest = next(b for b in context.intermediate.landed()[0] if b.number == committed.batch_number)
        snapshot = context.intermediate.snapshot_with(newest)
        changes = self._changes(context, batches[0].number, committed.batch_number, snapshot)
        touched = (batches[0].number, batches[-1].number)
        if self.table.mode == "append":
            return self._append(context, committed, committed, changes.missing_from(*touched))
        changes = changes.of_keys_in(touched)
        if self.table.mode == "delete":
            changes = replace(changes, missing=True)
        return self._merge(context, committed, committed, changes)

    def _changes(self, context: MergeContext, first: int, last: int, snapshot: int) -> Changes:
        key = self.spec.changes.key
        wanted = Reduction(
            table=context.intermediate.path,
            snapshot=snapshot,
            first=first,
            last=last,
            mode=self.table.mode,
            columns=tuple(self.columns),
            keys=tuple(key.columns) if key else (),
            order_by=self.spec.changes.ordered_by,
            route=route_filter(self.spec, self.table),
        )
        return Changes(
            spark=context.spark,
            wanted=wanted,
            tombstones=(self.catalog.name, *self.tombstones.split(".")) if self.tombstones else None,
            null_safe=bool(key and key.nulls == "match"),
            keeps=may_keep(self.spec, self.table, context.intermediate),
        )

    @property
    def tombstones(self) -> str | None:
        """The table that keeps the order of deletes, so that an older change cannot bring a row back."""
        deletes = self.table.mode in ("upsert_delete", "delete")
        return f"{self.table.table}__tombstones" if self.spec.changes.ordered_by and deletes else None

    def _append(
        self, context: MergeContext, committed: CommittedState | None, state: CommittedState, changes: Changes
    ) -> Merged:
        clock = Stages()
        attempt = self.attempt(committed, context.transaction)
        failpoint("merge.begun")
        with spark_errors(self.name):
            clock.time("write", lambda: changes.append_to(attempt))
        rows = attempt.added_rows()
        failpoint("merge.written")
        summary = {**state.to_properties(), **self._run(context)}
        snapshot = clock.time(
            "publish", lambda: attempt.publish_append(summary, state_properties(state, self.table.branch))
        )
        if context.transaction is None:
            failpoint("merge.published")
        return Merged(MergeCounts(changes=rows, inserted=rows), str(snapshot), clock.seconds)

    def _merge(
        self, context: MergeContext, committed: CommittedState | None, state: CommittedState, changes: Changes
    ) -> Merged:
        clock = Stages()
        mirrored = state_properties(state, self.table.branch)
        attempt = self.attempt(committed, context.transaction)
        failpoint("merge.begun")
        summary = {**attempt.summary, **state.to_properties(), **self._run(context)}
        with spark_errors(self.name):
            counts = clock.time("plan", lambda: changes.effect_on(attempt))
            clock.time("write", lambda: changes.merge_into(attempt, summary))
        failpoint("merge.written")
        snapshot = clock.time("publish", lambda: attempt.publish_head(summary, mirrored))
        if context.transaction is None:
            failpoint("merge.published")
        return Merged(counts, str(snapshot), clock.seconds)

    def attempt(self, committed: CommittedState | None, transaction: Transaction | None = None) -> Attempt:
        """A try at the table's next commit: of a merge, or of landing where the table itself is landed."""
        assert transaction is None or isinstance(transaction, CatalogTransaction), "from our own `transaction`"
        return Attempt(
            self.catalog,
            self.table.table,
            self.pipeline,
            committed,
            self.table.branch,
            skip_undone=self.table.on_rollback == "skip",
            publish=transaction.add if transaction else None,
        )

    def _run(self, context: MergeContext) -> dict[str, str]:
        return {PREFIX + "run-id": context.run_id}

    def read(self, spark: SparkSession) -> IcebergReader:
        return IcebergReader(self.columns, self.catalog, self.table, spark)

    def touched_duplicates(self, context: MergeContext, batches: Sequence[LandedBatch]) -> int:
        key = self.spec.changes.key
        if not batches or key is None:
            return 0
        target = branch_path(self.catalog, self.table)
        query = render("spark", "duplicate_keys", target=target, landed=context.intermediate.path, keys=key.columns)
        with spark_errors(self.name):
            arguments = {"first": batches[0].number, "last": batches[-1].number}
            found = context.spark.sql(query, args=arguments).first()
        return int(found["duplicates"]) if found else 0

    def spark_settings(self) -> Mapping[str, str]:
        return self.catalog.spark_settings()

    def commit_reference(self, batch_number: int) -> str | None:
        return commit_reference(self._load(), self.pipeline, self.table.branch, batch_number)

    def maintain(self, session: Callable[[], SparkSession]) -> Iterator[Done]:
        options = self.spec.maintenance
        return maintain(self.pipeline, self.catalog, self.table, self.tombstones, options, session)

    def transaction(self) -> CatalogTransaction:
        return CatalogTransaction(self.catalog)

    def as_landing(self, dead_letters: IntermediateTable) -> LandingTable:
        from jobs.landing.direct import DirectLanding

        return DirectLanding(self, dead_letters)

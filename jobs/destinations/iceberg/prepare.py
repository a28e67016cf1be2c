"""Prepares an Iceberg destination: creates or alters the table, and the table of kept deletes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from jobs.batch import PREFIX, CommittedState
from jobs.changes.copy_task import takes_copies
from jobs.destinations.iceberg.kept_deletes import BEGINS_WITH, RENEWED, KeptDeletes
from jobs.destinations.iceberg.layout_differences import WRITE_MODES
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.iceberg.state import committed_state
from jobs.destinations.reduced import ReducedDestination
from jobs.destinations.registry import kind_of
from jobs.evolution import AddColumn, SchemaChange, plan_evolution
from jobs.iceberg.history import PipelineBranch
from jobs.iceberg.partitioning import uuid_partitions
from jobs.iceberg.row_delta import can_be_taken, knows_files
from jobs.iceberg.schema import apply_changes, arrow_schema, emptied, iceberg_schema, partition_spec, sort_order
from jobs.only_writer import require_only_writer
from jobs.schema.types import holds
from jobs.spec.columns import RowColumn
from jobs.spec.metadata import COORDINATES
from resources.config_files.mistakes import one_of
from resources.errors import CommitFailed, ConfigurationError, SchemaRefused
from resources.iceberg import IcebergCatalog, require_version

_LOG = logging.getLogger("batchmerge")
_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "write.parquet.compression-codec": "zstd",
}
# A copy-on-write merge and maintenance rewrite whole files, sorted by key. With small files, changes to neighbouring
# keys rewrite little, however large the table is. (Measured by tests/benchmarks/upsert.py. The second size is of rows
# in memory, before compression.)
_SMALL_FILES = {
    "write.target-file-size-bytes": str(64 * 1024 * 1024),
    "write.spark.advisory-partition-size-bytes": str(32 * 1024 * 1024),
}
# A property of the table of kept deletes: the id of the table whose deletes it has.
_OF_TABLE = PREFIX + "of-table"


@dataclass(frozen=True)
class Preparation:
    """Creates or alters the tables that a merge needs. Safe to run at any time."""

    catalog: IcebergCatalog
    table: IcebergTable
    destination: ReducedDestination

    @property
    def where(self) -> str:
        return self.destination.name

    def run(self, dry_run: bool) -> list[str]:
        """Returns what was done, or with `dry_run` would be done, as texts for people.

        Raises:
            SchemaRefused, ConfigurationError: before anything is written.
        """
        destination = self.destination
        found = self.catalog.load(self.table.table)
        declared = self.table.properties.get("format-version", "2")
        require_version(found.format_version if found else declared, self.where)
        if found is not None:
            branch = PipelineBranch(destination.pipeline, self.table.branch)
            require_only_writer(destination.pipeline, branch.other_writers(found.properties), self.where)
            self._require_readable(found)
            self._require_writable(found)
        changes = destination.evolution(arrow_schema(found) if found else None)
        if found is not None:
            self._check_recognized(found, changes)
            if not dry_run:
                apply_changes(found, changes)
            return [*(f"{self.where}: {change}" for change in changes), *self._prepare_kept_deletes(found, dry_run)]
        keys = [c.name for c in destination.row_columns if c.is_key and not c.nullable]
        schema = iceberg_schema(destination.row_schema, keys if self.table.needs_key else ())
        spec = partition_spec(schema, self.table.partition_by)
        sort = sort_order(schema, self._sort_by)
        made = None
        if not dry_run:
            modes = {f"write.{operation}.mode": self._write_mode for operation in ("merge", "update", "delete")}
            usual = {**_PROPERTIES, **modes, **(_SMALL_FILES if self.table.needs_key else {})}
            made = self.catalog.create(self.table.table, schema, spec, {**usual, **self.table.properties}, sort)
        layout = f" partitioned by {', '.join(self.table.partition_by)}" if spec.fields else ""
        return [f"create {self.where}{layout}", *self._prepare_kept_deletes(made, dry_run)]

    def _check_recognized(self, table: Table, changes: Sequence[SchemaChange]) -> None:
        """Requires that the rows of earlier batches still have what they are recognized by: each would stay beside the
        row that its next change, or a replay, writes.

        Raises:
            SchemaRefused: somebody has renamed or dropped such a column.
        """
        new = {change.path for change in changes if isinstance(change, AddColumn)}
        lost = [c for c in self.destination.row_columns if (c.name,) in new and self._recognizes(c)]
        if not lost or (committed := committed_state(table, self.destination.pipeline, self.table)) is None:
            return
        # Otherwise the file asks for it since later batches.
        by_key = committed.meaning_hash == self.destination.spec.meaning_hash
        by_coordinates = committed.untraced_to < committed.batch_number
        if names := [c.name for c in lost if (by_coordinates if c.path[0] == "kafka" else by_key)]:
            raise SchemaRefused(
                f"the table lacks {', '.join(names)}, by which rows of earlier batches are recognized: somebody has "
                "renamed or dropped the column",
                where=self.where,
                remedy="rename it back (`ALTER TABLE … RENAME COLUMN`); if it was dropped, fill a new table (another "
                "name in `tables`)",
                table=self.where,
            )

    def _recognizes(self, column: RowColumn) -> bool:
        """Whether merges or replays compare this column with that of rows in the table."""
        if not self.table.has_unique_key and column.path[0] == "kafka":
            return self.table.has_coordinates and column.path[1] in COORDINATES
        return self.table.needs_key and (column.is_key or column.name == self.destination.spec.changes.ordered_by)

    def _require_readable(self, table: Table) -> None:
        """Rejects a table that Spark cannot read, unless rows are only copied into it, without values for its times.

        A pipeline whose tasks merge few changes without Spark SQL may have written it already: it is warned.
        """
        times = {field.name for field in arrow_schema(table) if holds(field.type, pa.types.is_time)}
        if not times:
            return
        what = f"{one_of(sorted(times), 'and')} is of Iceberg's type time, and Spark 4.0 reads no such table"
        written = {column.name.lower() for column in self.destination.row_columns}
        if written.isdisjoint(map(str.lower, times)):
            if self.table.mode == "append" and takes_copies(table):
                return
            if self._is_merged_by_tasks(table):
                _LOG.warning("%s: %s: maintenance, and merges of many changes, fail", self.where, what)
                return
        raise ConfigurationError(
            what,
            where=self.where,
            remedy="let pyiceberg or Trino replace it by a column of text, or write to another table, in which a "
            "column that is declared as `time` is text",
        )

    def _is_merged_by_tasks(self, table: Table) -> bool:
        by_tasks = self.table.needs_key and can_be_taken(table)
        return by_tasks and committed_state(table, self.destination.pipeline, self.table) is not None

    def _require_writable(self, table: Table) -> None:
        """Rejects a table whose partitions Spark's MERGE would mix up."""
        by, envelope = uuid_partitions(table), self.destination.spec.source.value.envelope
        truncates = envelope is not None and envelope.truncates == "apply"
        if by and self.table.needs_key and (truncates or not can_be_taken(table)):
            raise ConfigurationError(
                f"it is partitioned by UUIDs ({', '.join(by)}), and Spark's MERGE takes them for text",
                where=self.where,
                remedy="let its merges write positions of rows: set its property write.merge.mode to "
                "merge-on-read (and apply no truncations, `envelope.truncates`)",
            )

    @property
    def _write_mode(self) -> str:
        properties = {**_PROPERTIES, **self.table.properties}
        known = self.table.needs_key and knows_files(int(properties["format-version"]), properties)
        return WRITE_MODES[self.table.write or ("merge_on_read" if known else "copy_on_write")]

    @property
    def _sort_by(self) -> list[str]:
        if self.table.sort_by is not None:
            return self.table.sort_by
        key = self.destination.spec.changes.key
        return list(key.columns) if key and self.table.needs_key else []

    def _prepare_kept_deletes(self, table: Table | None, dry_run: bool) -> list[str]:
        """Creates or alters the table of kept deletes.

        Args:
            table: the destination table; None: it does not exist yet.
        """
        name, spec = self.destination.kept_deletes, self.destination.spec
        if not name:
            return []
        uuid = str(table.metadata.table_uuid) if table else ""
        found = self.catalog.load(name)
        if found is not None and found.properties.get(_OF_TABLE, uuid) != uuid:
            # The destination table was recreated: its old deletes would hide keys that it has to get again.
            if not dry_run:
                self.catalog.drop(name)
            found = None
        if found is not None:
            require_version(found.format_version, name)
            committed = committed_state(table, self.destination.pipeline, self.table)
            if committed and committed.orders_otherwise(spec.meaning_hash, spec.order_hash):
                # Another key or order: the merge of the reset that accepts it renews the kept deletes.
                return []
            changes = plan_evolution(
                name, arrow_schema(found), self.destination.kept_deletes_schema, self.table.evolve, spec.ignore_case
            )
            if not dry_run:
                apply_changes(found, changes)
            return [f"{name}: {change}" for change in changes]
        if not dry_run:
            self._create_kept_deletes(name, {_OF_TABLE: uuid, **self._begins_with(table)})
        return [f"create {name} for the order of deletes"]

    def renew_kept_deletes(self, before: CommittedState, check_lineage: Callable[[], object]) -> None:
        """Removes the kept deletes of an earlier key or order; once only, so that newer ones are not lost.

        Args:
            before: the last state with the earlier key or order.
            check_lineage: raises CommitFailed if the table is no longer at that state.

        Raises:
            CommitFailed: also if another run removes them at the same time.
        """
        name = self.destination.kept_deletes
        if not name:
            return
        found, renewal = self.catalog.require(name), self._renewal(before)
        # After loading the table: another run that continues meanwhile changes the state or this table, so that either
        # this check or the commit below fails.
        check_lineage()
        if found.properties.get(RENEWED) != renewal:
            requirements, updates = emptied(found, self.destination.kept_deletes_schema)
            renewed = SetPropertiesUpdate(updates={RENEWED: renewal, BEGINS_WITH: ""})
            self.catalog.commit(found, requirements, [*updates, renewed])

    def note_kept_deletes(self, before: CommittedState | None) -> KeptDeletes | None:
        """The kept deletes as they are; None without `order_by`.

        Raises:
            CommitFailed: another run has just renewed them, and is merging a reset from the same state.
        """
        name = self.destination.kept_deletes
        if not name:
            return None
        noted = KeptDeletes(self.catalog, self.destination.pipeline, name, self.catalog.require(name))
        renewed = noted.renewed
        if before and renewed.endswith(self._renewal(before, "")) and renewed != self._renewal(before):
            raise CommitFailed("another run merges a reset to another order of changes", where=self.where)
        return noted

    def _renewal(self, before: CommittedState, order: str | None = None) -> str:
        order = self.destination.spec.order_hash if order is None else order
        return f"{order} after {before.commit_id}"

    def _begins_with(self, table: Table | None) -> dict[str, str]:
        """The property that names main's kept deletes, for those of a branch that begins with main's rows and state."""
        branch, spec = PipelineBranch(self.destination.pipeline, self.table.branch), self.destination.spec
        if table is None or self.table.branch == "main" or branch.own_properties(table):
            return {}
        committed = committed_state(table, self.destination.pipeline, self.table)
        if committed is None or committed.orders_otherwise(spec.meaning_hash, spec.order_hash):
            return {}
        name = kind_of(self.table).kept_deletes(spec, self.table.model_copy(update={"branch": "main"}))
        found = self.catalog.load(name) if name else None
        of_table = found and found.properties.get(_OF_TABLE) == str(table.metadata.table_uuid)
        return {BEGINS_WITH: name} if name and of_table else {}

    def _create_kept_deletes(self, name: str, properties: dict[str, str]) -> None:
        schema = iceberg_schema(self.destination.kept_deletes_schema)
        self.catalog.create(name, schema, properties={**_PROPERTIES, **properties})

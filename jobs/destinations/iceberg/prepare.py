"""Getting an Iceberg destination ready: the table, the one that keeps the order of deletes, and their schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table

from jobs.batch import PREFIX
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.requirements import require_create
from jobs.evolution import plan_evolution
from jobs.iceberg.history import other_writers
from jobs.iceberg.row_delta import knows_files
from jobs.iceberg.schema import apply_changes, arrow_schema, iceberg_schema, partition_spec, sort_order
from jobs.only_writer import require_only_writer
from jobs.spec.columns import RowColumn
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog

_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "write.parquet.compression-codec": "zstd",
}
# A copy-on-write merge and maintenance write whole files again, sorted by key: so many bytes for a cluster of keys,
# however large the table is. (Measured by tests/benchmarks/upsert.py. The second is of rows in memory, before they are
# compressed.)
_SMALL_FILES = {
    "write.target-file-size-bytes": str(64 * 1024 * 1024),
    "write.spark.advisory-partition-size-bytes": str(32 * 1024 * 1024),
}
# Of tombstones: which incarnation of their table they belong to.
_OF_TABLE = PREFIX + "of-table"
_WRITE_MODES = {"copy_on_write": "copy-on-write", "merge_on_read": "merge-on-read"}


@dataclass(frozen=True)
class Preparation:
    """Makes what a merge needs, or brings it up to date. Safe to run at any time.

    Attributes:
        tombstones: the table that keeps the order of deletes; None where none is needed.
    """

    catalog: IcebergCatalog
    pipeline: str
    spec: PipelineSpec
    table: IcebergTable
    columns: Sequence[RowColumn]
    tombstones: str | None

    @property
    def _where(self) -> str:
        return f"iceberg {self.table.table}"

    def run(self, dry_run: bool) -> list[str]:
        """What was done, or with `dry_run` would be done, for people.

        Raises:
            SchemaRefused, ConfigurationError: before anything is written.
        """
        columns = self.columns
        wanted = pa.schema([pa.field(c.name, c.type, c.nullable) for c in columns])
        found = self.catalog.load(self.table.table)
        self._check_format(str(found.format_version) if found else self.table.properties.get("format-version", "2"))
        if found is not None:
            others = other_writers(found.properties, self.pipeline, self.table.branch)
            require_only_writer(self.pipeline, others, self._where)
            changes = plan_evolution(self._where, arrow_schema(found), wanted, self.table.evolve, self.spec.ignore_case)
            if not dry_run:
                apply_changes(found, changes)
            return [*(f"{self._where}: {change}" for change in changes), *self._prepare_tombstones(found, dry_run)]
        require_create(self.table, self._where)
        keys = [c.name for c in columns if c.is_key and not c.nullable]
        schema = iceberg_schema(wanted, keys if self.table.needs_key else ())
        spec = partition_spec(schema, self.table.partition_by)
        sort = sort_order(schema, self._sort_by)
        made = None
        if not dry_run:
            modes = {f"write.{operation}.mode": self._write_mode for operation in ("merge", "update", "delete")}
            usual = {**_PROPERTIES, **modes, **(_SMALL_FILES if self.table.needs_key else {})}
            made = self.catalog.create(self.table.table, schema, spec, {**usual, **self.table.properties}, sort)
        layout = f" partitioned by {', '.join(self.table.partition_by)}" if spec.fields else ""
        return [f"create {self._where}{layout}", *self._prepare_tombstones(made, dry_run)]

    @property
    def _write_mode(self) -> str:
        properties = {**_PROPERTIES, **self.table.properties}
        known = self.table.needs_key and knows_files(int(properties["format-version"]), properties)
        return _WRITE_MODES[self.table.write or ("merge_on_read" if known else "copy_on_write")]

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
                where=self._where,
                remedy="use a table of format version 2 (`properties: {format-version: '2'}`)",
            )

    def _prepare_tombstones(self, table: Table | None, dry_run: bool) -> list[str]:
        """
        Args:
            table: the one whose deletes they are; None: it is not there yet.
        """
        if not self.tombstones:
            return []
        uuid = str(table.metadata.table_uuid) if table else ""
        order = next(c for c in self.columns if c.name == self.spec.changes.ordered_by)
        kept = pa.schema(
            [pa.field(c.name, c.type) for c in self.columns if c.is_key] + [pa.field("__order", order.type)]
        )
        found = self.catalog.load(self.tombstones)
        if found is not None and found.properties.get(_OF_TABLE, uuid) != uuid:
            # The table was dropped and made again: they would hide keys that it has to get once more.
            if not dry_run:
                self.catalog.drop(self.tombstones)
            found = None
        if found is not None:
            changes = plan_evolution(
                self.tombstones, arrow_schema(found), kept, self.table.evolve, self.spec.ignore_case
            )
            if not dry_run:
                apply_changes(found, changes)
            return [f"{self.tombstones}: {change}" for change in changes]
        if not dry_run:
            self.catalog.create(self.tombstones, iceberg_schema(kept), properties={**_PROPERTIES, _OF_TABLE: uuid})
        return [f"create {self.tombstones} for the order of deletes"]

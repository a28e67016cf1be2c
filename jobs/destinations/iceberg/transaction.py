"""The commits of several tables of one catalog as one commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from resources.iceberg import IcebergCatalog
from resources.iceberg_transaction import TableChange


@dataclass(frozen=True)
class CatalogTransaction:
    """Collects the requirements and updates of each table's commit.

    Raises:
        ConfigurationError: the catalog cannot commit several tables at once.
    """

    catalog: IcebergCatalog
    _changes: list[TableChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalog.require_transactions()

    def add(self, table: Table, requirements: list[TableRequirement], updates: list[TableUpdate]) -> None:
        """Adds a table's commit (`jobs.iceberg.table_commit.Publish`)."""
        self._changes.append(TableChange(table, tuple(requirements), tuple(updates)))

    def commit(self) -> None:
        """Commits all tables at once, with the requirements of every table's compare-and-set."""
        if self._changes:
            self.catalog.commit_together(self._changes)

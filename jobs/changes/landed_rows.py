"""What destinations read from: landed batches and their rows."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from jobs.batch import LandedBatch, LandedBatches
from resources.iceberg import IcebergCatalog


class LandedSnapshot(NamedTuple):
    """A snapshot of the intermediate table; `has_revision`: records may have several readings there."""

    id: int
    has_revision: bool


class LandedRows(Protocol):
    """A table of landed changes (`jobs.changes.columns`): the intermediate table."""

    @property
    def identifier(self) -> str:
        """The table's name in its catalog."""

    @property
    def catalog(self) -> IcebergCatalog:
        """The table's catalog."""

    @property
    def path(self) -> tuple[str, ...]:
        """The table in Spark SQL. Its rows include the dead letters."""

    def landed(self) -> LandedBatches:
        """The landed batches that are still known."""

    def snapshot_with(self, newest: LandedBatch) -> LandedSnapshot:
        """A snapshot that holds this batch and all before it."""

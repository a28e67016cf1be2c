"""What destinations read from: landed batches and their rows."""

from __future__ import annotations

from typing import Protocol

from jobs.batch import LandedBatch, LandedBatches
from resources.iceberg import IcebergCatalog


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

    def snapshot_with(self, newest: LandedBatch) -> int:
        """Id of a snapshot that holds this batch and all before it."""

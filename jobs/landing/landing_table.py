"""Where batches are landed: what the protocol asks of an intermediate table, or of a table that stands in for it."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import SparkSession

from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.offsets import Offsets
from jobs.watermark import Watermark
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster


class LandedRows(Protocol):
    """What a destination reads: landed batches and their rows."""

    @property
    def identifier(self) -> str:
        """The table's name in its catalog."""

    @property
    def catalog(self) -> IcebergCatalog:
        """The catalog that it is in."""

    @property
    def path(self) -> tuple[str, ...]:
        """The table of landed rows in Spark SQL; the dead letters are among them."""

    def landed(self) -> tuple[list[LandedBatch], bool]:
        """The landed batches that are still known, ascending, and whether that is from the first one on."""

    def snapshot_with(self, newest: LandedBatch) -> int:
        """A snapshot that holds this batch and all before it."""


class LandingTable(LandedRows, Protocol):
    """An Iceberg table whose snapshots are batches."""

    def prepare(self) -> list[str]:
        """Creates or evolves what is needed; returns what was done, for people."""

    def committed(self) -> CommittedState | None:
        """The newest landed state."""

    def current_state(self) -> tuple[CommittedState | None, int]:
        """The state that it stands at now, be it by a rollback, and the highest batch number that it ever had."""

    def reset(
        self, batch: Batch, standing: CommittedState | None, watermark: Watermark, summary: dict[str, str]
    ) -> None:
        """Publishes a batch that resets offsets, on top of the state that it stands at.

        Raises:
            CommitFailed: another run landed meanwhile.
        """

    def land(
        self,
        spark: SparkSession,
        kafka: KafkaCluster,
        batch: Batch,
        committed: CommittedState | None,
        log_ends: Offsets,
        summary: dict[str, str],
    ) -> LandedBatch:
        """Reads exactly the batch's ranges and publishes them as one snapshot."""

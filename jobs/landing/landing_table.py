"""Where batches are landed: what the protocol asks of an intermediate table, or of a table that stands in for it."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import SparkSession

from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.changes.landed_rows import LandedRows
from jobs.offsets import Offsets
from jobs.watermark import Watermark
from resources.kafka import KafkaCluster


class LandingTable(LandedRows, Protocol):
    """An Iceberg table that batches are landed in, one snapshot each."""

    def exists(self) -> bool:
        """Whether the table is there."""

    def prepare(self) -> list[str]:
        """Creates or evolves what is needed; returns what was done, for people."""

    def committed(self) -> CommittedState | None:
        """The newest landed state."""

    def current_state(self) -> tuple[CommittedState | None, int]:
        """The state of its head, rolled back or not, and the highest batch number that it ever had."""

    def reset(
        self, batch: Batch, current: CommittedState | None, watermark: Watermark, summary: dict[str, str]
    ) -> None:
        """Publishes a batch that resets offsets, on top of the current state.

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

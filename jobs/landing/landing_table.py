"""Where batches are landed: what the protocol asks of an intermediate table, or of a table that stands in for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.changes.landed_rows import LandedRows
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.landing.ranges import LandedRanges
from jobs.landing.task import Selection
from jobs.offsets import Offsets
from jobs.watermark import Watermark
from resources.kafka import KafkaCluster

Rows = Callable[[DataFrame], DataFrame]


class Readings(Protocol):
    """Records that are read once more, with the places that they have."""

    @property
    def from_letters(self) -> bool:
        """They are read from dead letters, not from Kafka."""

    def write(
        self, commit: Append | Attempt, columns: pa.Schema, selection: Selection, made: Rows | None = None
    ) -> LandedRanges:
        """Writes those that are selected, for this commit.

        Args:
            columns: of the table of landed rows.
            made: landed rows to rows of the table that is written; only for an attempt.

        Raises:
            BadRecords, InvariantBroken: as in landing.
        """


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

    def recreated(self) -> dict[str, list[int]]:
        """Per topic that was recreated the first batch of each later topic of that name."""

    def revise(
        self, batch: Batch, committed: CommittedState, readings: Readings, summary: dict[str, str]
    ) -> LandedBatch:
        """Publishes readings as this batch, which revises others.

        Raises:
            CommitFailed: another run landed meanwhile.
        """

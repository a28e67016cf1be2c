"""Records that are read once more, from Kafka or from dead letters; landed as a batch that revises earlier ones."""

from __future__ import annotations

from typing import Protocol

from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.landing.ranges import LandedRanges
from jobs.landing.task import Selection


class Readings(Protocol):
    """Records with the places that they have."""

    @property
    def from_dead_letters(self) -> bool:
        """They are read from dead letters, not from Kafka."""

    def write(self, commit: Append | Attempt, selection: Selection) -> LandedRanges:
        """Writes those that are selected, for this commit to the intermediate table.

        Raises:
            BadRecords, InvariantBroken: as in landing.
        """

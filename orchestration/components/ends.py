"""How far a table is behind Kafka, for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from jobs.batch import CommittedState
from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from orchestration.components import metadata
from resources.errors import TransientError


@dataclass(frozen=True)
class Ends:
    """The last stable offsets that Kafka had at this time; None where it did not answer: no failure of a table."""

    at: datetime
    offsets: Offsets | None

    @classmethod
    def now(cls, pipeline: Pipeline) -> Ends:
        try:
            return cls(datetime.now(UTC), pipeline.topic_state().stable)
        except TransientError:
            return cls(datetime.now(UTC), None)

    def lag(self, state: CommittedState | None) -> int | None:
        """Records that Kafka has and the table has not."""
        return None if self.offsets is None else metadata.lag_behind(self.offsets, state)

"""What one launch may say; everything else is in the pipeline's file. Few options, each with a default."""

from typing import Literal

import dagster as dg
from pydantic import Field

# Seconds that a run goes on landing before its tables merge, at most.
_TURN = 300.0

Mode = Literal["auto", "advance", "replay"]


class TopicsConfig(dg.Config):
    """Which topics a step works on."""

    topics: list[str] = Field(default_factory=list, description="With `for_each`: only these topics. Left out: all.")


class MergeConfig(TopicsConfig):
    """Options of a table's step."""

    mode: Mode = Field(
        default="auto",
        description="auto: a plain run merges new batches, and a backfill merges the batches of its hours again. "
        "advance or replay: one of the two, however the step is launched.",
    )


class LandConfig(MergeConfig):
    """Options of the landing step."""

    max_batches: int | None = Field(
        default=None,
        ge=0,
        description="Land at most this many batches; 0: until caught up. Left out: as the file says.",
    )
    until_caught_up: bool = Field(default=False, description="Land all that Kafka has now, however long that takes.")

    def batches(self, usual: int) -> int:
        """How many batches to land; 0: until caught up."""
        if self.until_caught_up:
            return 0
        return usual if self.max_batches is None else self.max_batches

    def turn(self, limit: float) -> float:
        """Seconds that a run goes on landing before its tables merge; the next run lands the rest.

        Args:
            limit: the time limit of a landing, in seconds.
        """
        return float("inf") if self.until_caught_up else min(_TURN, limit / 2)

"""Counts of refused and adjusted rows of a load, and the job labels that carry them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.added import Added

PREFIX = "batchmerge-"


@dataclass(frozen=True)
class Judged(Added):
    """Counts of rows; counts of several loads can be added."""

    refused: int = 0
    out_of_range: int = 0

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Judged:
        return cls(int(labels.get(PREFIX + "refused", 0)), int(labels.get(PREFIX + "out-of-range", 0)))

    @staticmethod
    def attempt_of(labels: Mapping[str, str]) -> str:
        """The attempt that wrote the dead letters of a load."""
        return labels.get(PREFIX + "attempt", "")

    def labels(self, attempt: str = "") -> dict[str, str]:
        """Labels for a job; empty if all rows are as they were landed."""
        said = {"refused": self.refused, "out-of-range": self.out_of_range}
        counts = {PREFIX + name: str(count) for name, count in said.items() if count}
        return {**counts, **({PREFIX + "attempt": attempt} if attempt and counts else {})}

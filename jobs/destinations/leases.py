"""A table's lease as its system has it: which run holds it, and the batch that it writes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jobs.batch import CommittedState


@dataclass(frozen=True)
class PartitionState:
    """A topic-partition: the insert of offsets `first` to `last` (both included) was begun (BEFORE) or done (AFTER)."""

    topic: str
    partition: int
    first: int
    last: int
    phase: str
    batch: int
    changed_at: datetime


@dataclass(frozen=True)
class LeaseState:
    """The lease of a table on one endpoint.

    Attributes:
        shard: number of the endpoint, from 1.
        owner: token of the run that holds the lease; empty if no run does.
        batch: the batch that was begun and not committed; 0 for none.
        committed: the table's committed state; None before its first batch.
        changed_at: when the lease last changed.
    """

    shard: int
    endpoint: str
    owner: str
    run_id: str
    epoch: int
    batch: int
    committed: CommittedState | None
    changed_at: datetime
    partitions: tuple[PartitionState, ...]

    @property
    def left_behind(self) -> bool:
        """Whether a batch was begun and not committed: its run is still writing, or is dead and another must finish."""
        return self.batch > 0

    @property
    def open_partitions(self) -> tuple[PartitionState, ...]:
        """Topic-partitions whose insert was begun and not confirmed."""
        return tuple(p for p in self.partitions if p.phase == "BEFORE")

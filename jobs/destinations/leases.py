"""What a system says of the run that writes to a table: who holds it, and which batch is under way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jobs.batch import CommittedState


@dataclass(frozen=True)
class PartitionState:
    """One topic-partition: offsets `first` to `last` (both included) were begun (BEFORE) or done (AFTER)."""

    topic: str
    partition: int
    first: int
    last: int
    phase: str
    batch: int
    commit_id: str
    run_id: str
    changed_at: datetime


@dataclass(frozen=True)
class LeaseState:
    """One lease: of a table on one endpoint.

    Attributes:
        shard: number of the endpoint, from 1.
        owner: token of the run that holds the lease; empty where nobody does.
        batch: under way; 0 for none.
        committed: the state that the table has; None before its first batch.
        changed_at: when the lease last changed.
    """

    pipeline: str
    table: str
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
        """A batch was begun and is not committed: its run is at work, or it is dead and another one must finish."""
        return self.batch > 0

    @property
    def open_partitions(self) -> tuple[PartitionState, ...]:
        """Topic-partitions whose insert was begun and not confirmed."""
        return tuple(p for p in self.partitions if p.phase == "BEFORE")

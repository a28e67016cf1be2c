"""Whether a dead run has left a batch half done, and whether to start a recovery run. Pure decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from jobs.destinations.leases import LeaseState
from orchestration.doubled import doubled
from orchestration.sensors.cursor import SensorCursor

# Seconds between the first two recovery runs for a batch. The pause doubles with each further one.
_FIRST_PAUSE = 60.0
# Longest pause in seconds between two recovery runs.
_LONGEST_PAUSE = 3600.0


class Asked(BaseModel):
    """Recovery runs that were requested for one batch of one table."""

    model_config = ConfigDict(frozen=True)
    batch: int
    times: int
    at: float


class LeaseCursor(SensorCursor):
    """What the sensor remembers: what it last showed of each table, and the recovery runs that it has requested."""

    shown: dict[str, str] = Field(default_factory=dict)
    asked: dict[str, Asked] = Field(default_factory=dict)


def left_behind(
    lease: LeaseState, status: dg.DagsterRunStatus | None, now: datetime, time_limit: float
) -> tuple[bool, str]:
    """Whether a batch was begun by a run that is dead, and a sentence about it.

    Args:
        status: of the lease's run; None where this Dagster instance does not know it (a run elsewhere, or by hand).
        time_limit: seconds that a step may take: a run that nobody knows has these since the lease last changed.
    """
    if not lease.left_behind:
        return False, f"batch {lease.committed.batch_number if lease.committed else 0} is complete"
    run = f"batch {lease.batch} was begun by run {lease.run_id[:8]}"
    if status is not None:
        if status in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED):
            return True, f"{run}, which has ended ({status.value.lower()})"
        return False, f"{run}, which is {status.value.lower()}"
    age = (now - lease.changed_at).total_seconds()
    if age >= time_limit:
        return True, f"{run}, unknown to this Dagster instance, {age:.0f} s ago"
    return False, f"{run}, unknown to this Dagster instance, {age:.0f} s ago; it has {time_limit:.0f} s"


def is_due(asked: Asked | None, leases: Sequence[LeaseState], now: float) -> bool:
    """Whether to request a recovery run: at once for a new batch, then after pauses that double, up to an hour."""
    if asked is None or all(lease.batch != asked.batch for lease in leases):
        return True
    # A clock that was set back makes no pause longer.
    return not 0 <= now - asked.at < doubled(_FIRST_PAUSE, asked.times - 1, _LONGEST_PAUSE)


def after_asking(asked: Asked | None, batch: int, now: float) -> Asked:
    times = asked.times + 1 if asked and asked.batch == batch else 1
    return Asked(batch=batch, times=times, at=now)

"""How far a table is behind Kafka."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from jobs.batch import CommittedState, LandedBatch
from jobs.offsets import Offsets, total
from jobs.watermark import Watermark

_LOG = logging.getLogger("batchmerge")


def lag_behind(ends: Offsets, state: CommittedState | None, first: Offsets | None = None) -> int:
    """Offsets that Kafka has and the state has not.

    Args:
        first: Kafka's first offsets: what expired before anything was read does not wait.
    """
    reached = {**(first or {}), **(state.offsets if state else {})}
    return sum(max(0, end - reached.get(tp, 0)) for tp, end in ends.items())


def caught_up_through(watermark: Watermark | None, lag: int | None, now: datetime) -> datetime | None:
    """The record time up to which nothing is missing; the current time if nothing waits."""
    if lag == 0:
        return now
    through = watermark.caught_up_through if watermark else None
    return None if through is None else datetime.fromtimestamp(through / 1000, UTC)


def log_progress(landed: LandedBatch, log_ends: Offsets) -> None:
    """Logs the progress after a batch; the log record has ``landed`` and ``waiting``, in offsets, for a progress bar.

    Args:
        log_ends: last stable offsets when the batch was planned.
    """
    waiting = lag_behind(log_ends, CommittedState.after(landed))
    more = {"landed": total(landed.batch.ranges), "waiting": waiting}
    _LOG.info("%d offsets wait in Kafka after batch %d", waiting, landed.number, extra=more)

"""Logs how much is landed and how much waits, also as data for a progress bar."""

from __future__ import annotations

import logging

from jobs import offsets
from jobs.batch import LandedBatch
from jobs.offsets import Offsets

_LOG = logging.getLogger("batchmerge")


def log_progress(landed: LandedBatch, log_ends: Offsets) -> None:
    """Logs the progress after a batch; the log record has ``landed`` and ``waiting``, in offsets.

    Args:
        log_ends: last stable offsets when the batch was planned.
    """
    ranges = landed.batch.ranges
    waiting = sum(max(0, end - ranges[tp].end) for tp, end in log_ends.items() if tp in ranges)
    more = {"landed": offsets.total(ranges), "waiting": waiting}
    _LOG.info("%d offsets wait in Kafka after batch %d", waiting, landed.number, extra=more)

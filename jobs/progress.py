"""How much is landed and how much waits: a line in the log, and for whoever draws a bar of it."""

from __future__ import annotations

import logging

from jobs import offsets
from jobs.batch import LandedBatch
from jobs.offsets import Offsets

_LOG = logging.getLogger("batchmerge")


def log_progress(landed: LandedBatch, log_ends: Offsets) -> None:
    """After a batch; the record carries ``landed`` and ``waiting``, in offsets.

    Args:
        log_ends: last stable offsets when the batch was planned.
    """
    ranges = landed.batch.ranges
    waiting = sum(max(0, end - ranges[tp].end) for tp, end in log_ends.items() if tp in ranges)
    more = {"landed": offsets.total(ranges), "waiting": waiting}
    _LOG.info("%d offsets wait in Kafka after batch %d", waiting, landed.number, extra=more)

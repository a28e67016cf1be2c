"""The highest batch number that destination tables know: with a new intermediate table, numbers go on from there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from jobs.destinations.base import Destination
from jobs.time_limit import with_timeout
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")

# A table that does not answer holds up a pipeline's first landing for so many seconds.
_PATIENCE = 20.0


def highest_of(destinations: Sequence[Destination]) -> int:
    """0 where none knows a batch.

    A table that does not answer does not hold up landing: should it know a higher number, then its merge is refused by
    its lineage, as it would be with any number.
    """
    with ThreadPoolExecutor(len(destinations) or 1) as pool:
        return max(pool.map(_known_to, destinations), default=0)


def _known_to(destination: Destination) -> int:
    def number() -> int:
        state = destination.committed()
        # What a dead run has left half done may be there, and what comes has to be newer.
        begun = (lease.batch for lease in destination.leases())
        return max(state.batch_number if state else 0, *begun, 0)

    try:
        return with_timeout(_PATIENCE, destination.name, number)
    except BatchmergeError as problem:
        _LOG.warning("the first batch is planned without %s: %s", destination.name, problem)
        return 0

"""The highest batch number in destination tables, after which numbers continue in a new intermediate table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from jobs.batch import CommittedState
from jobs.destinations.base import Destination
from jobs.time_limit import with_timeout
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")

# For at most this many seconds a table that does not respond delays a pipeline's first landing.
_PATIENCE = 20.0


def highest_of(destinations: Sequence[Destination]) -> int:
    """The highest batch number of these tables; 0 if none has a batch.

    A table that does not respond is ignored: if it has a higher number, the lineage check refuses its merge, as it
    would with any number.
    """
    with ThreadPoolExecutor(len(destinations) or 1) as pool:
        return max(pool.map(_known_to, destinations), default=0)


def highest_in(destination: Destination, states: Sequence[CommittedState | None]) -> int:
    """The highest batch number of a table whose parts have these committed states; 0 if it has no batch."""
    # Rows of a dead run's unfinished batch may be in the table; new batches have to be newer.
    begun = (lease.batch for lease in destination.leases())
    return max([*(state.batch_number for state in states if state), *begun], default=0)


def _known_to(destination: Destination) -> int:
    try:
        return with_timeout(_PATIENCE, destination.name, lambda: highest_in(destination, destination.states()))
    except BatchmergeError as problem:
        _LOG.warning("the first batch is planned without %s: %s", destination.name, problem)
        return 0

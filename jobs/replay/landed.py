"""Replay: merges landed batches again. The committed state does not move (`docs/replay-and-backfill.md`).

For the keys that those batches touched, the newest landed change is merged again; an append table gets the rows that
it lacks. So replaying any window, any number of times, in any order, does not change a table that is correct.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from jobs.batch import LandedBatch
from jobs.commit_loop import retry_on_conflict
from jobs.destinations.base import Destination
from jobs.destinations.refused_rows import log_refused
from jobs.lineage import next_batches, of_one_meaning
from jobs.merged import MergedBatches
from jobs.pipeline import Pipeline
from jobs.protocol import merge
from jobs.replay.coordinates import check_batches, check_coordinates
from resources.errors import ConfigurationError

_LOG = logging.getLogger("batchmerge")


def replay_window(pipeline: Pipeline, destination: Destination, start: datetime, end: datetime) -> MergedBatches | None:
    """Replays the batches that were landed in ``[start, end)``; None if there were none.

    Raises:
        ConfigurationError: the table's rows cannot be distinguished well enough to replay (`jobs.replay.coordinates`).
    """
    instants = start.timestamp() * 1000, end.timestamp() * 1000
    return _replay(pipeline, destination, lambda b: b.batch.planned_at, *instants)


def replay_batches(pipeline: Pipeline, destination: Destination, first: int, last: int) -> MergedBatches | None:
    """Replays landed batches by number, both ends included; None if there are none."""
    return _replay(pipeline, destination, lambda b: b.number, first, last + 1)


def _replay(
    pipeline: Pipeline, destination: Destination, position: Callable[[LandedBatch], int], first: float, end: float
) -> MergedBatches | None:
    """Replays the batches whose position, a number or a time, is in ``[first, end)``."""
    check_coordinates(pipeline, destination)
    if any(lease.left_behind for lease in destination.leases()):
        # A run has died in the middle of a batch: finish it before the replay.
        merge(pipeline, destination)

    def once() -> MergedBatches | None:
        destination.settle()
        committed = destination.committed()
        pipeline.check_meaning(committed)
        if committed is None:
            return None
        landed = pipeline.intermediate.landed()
        next_batches(destination.name, committed, landed.batches, landed.complete)
        if not landed.complete and first < position(landed.batches[0]):
            raise _too_early(destination, landed.batches[0], "were removed by retention (`maintenance.landed`)")
        merged_batches = [b for b in landed.batches if b.number <= committed.batch_number]
        batches = [b for b in merged_batches if first <= position(b) < end]
        if not batches:
            return None
        meant = of_one_meaning(merged_batches)
        if batches[0].number < meant[0].number:
            raise _too_early(destination, meant[0], "were landed with another `changes` (key, op mapping or order)")
        check_batches(destination, committed, batches[0].number)
        # Columns may have been added to the file since the last run.
        pipeline.intermediate.prepare()
        destination.prepare()
        merged = destination.replay(pipeline.merge_context(destination), committed, batches)
        _LOG.info("replayed batches %d to %d into %s", batches[0].number, batches[-1].number, destination.name)
        log_refused(pipeline.name, destination.name, merged.counts)
        return MergedBatches(batches, committed, merged)

    return retry_on_conflict(once, destination.table.max_commit_attempts, destination.name)


def _too_early(destination: Destination, oldest: LandedBatch, why: str) -> ConfigurationError:
    landed_at = datetime.fromtimestamp(oldest.batch.planned_at / 1000, UTC)
    return ConfigurationError(
        f"batches before {oldest.number}, landed before {landed_at:%Y-%m-%d %H:%M:%S} UTC, {why}",
        where=destination.name,
        remedy="begin the replay at that batch; or read the older records that Kafka still has: `batchmerge replay "
        "--kafka-from`",
        oldest=oldest.number,
    )

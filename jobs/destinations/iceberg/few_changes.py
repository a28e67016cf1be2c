"""Decides which merges a few Spark tasks can make without Spark SQL, each for its share of the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from jobs.batch import LandedBatch
from jobs.changes.columns import UNCHANGED
from jobs.changes.files import LandedFiles
from jobs.changes.landed_rows import LandedRows
from jobs.changes.last_changes import LastChanges
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.reduction import Reduction
from jobs.destinations.iceberg.cached_changes import LEAST_WRITERS, writers

# The most landed rows of a share.
_SHARE_CHANGES = 250_000
# The most bytes of landed files of a share, and the most in memory: an array of texts has room for 2 GB.
_SHARE_BYTES = 32 << 20
_SHARE_MEMORY = 1 << 30
# Up to so many shares and files, each share reads all files, which costs less than sending rows. Above that, separate
# readers read each file once and send its rows to the shares.
_READ_BY_EACH, _OPENED_BY_EACH = 8, 100


def few_changes(
    landed: LandedRows,
    wanted: Reduction,
    batches: Sequence[LandedBatch],
    leaves_unchanged: bool,
    cores: Callable[[], int],
) -> LastChanges | None:
    """The changes of these batches for tasks to read; None if they are too many, or need other landed rows too.

    Args:
        cores: how many tasks the cluster runs at a time; called only for more than `LEAST_WRITERS`.
    """
    plain = wanted.mode.startswith("upsert") and wanted.keys and not wanted.order_by
    again = wanted.revised or wanted.touched
    count = sum(b.counts.landed for b in batches)
    if not plain or again or are_too_many(ceil(count / _SHARE_CHANGES), cores):
        return None
    taken = LandedFiles.up_to(batches[-1], landed).taking(wanted.operations, wanted.route)
    paths = [*(c.path for c in wanted.columns), *([(UNCHANGED.name,)] if leaves_unchanged else [])]
    files = PlannedFiles.of(taken, batches, paths)
    if files.bytes is None:
        return None
    sizes = (count / _SHARE_CHANGES, files.bytes / _SHARE_BYTES, files.memory / _SHARE_MEMORY)
    shares = max(1, *map(ceil, sizes))
    # Only reading shows whether changes omit columns. Then this path has to give up, which only a single task can: it
    # has written nothing yet.
    if (leaves_unchanged and shares > 1) or are_too_many(shares, cores):
        return None
    is_sent = len(files.files or ()) > _OPENED_BY_EACH or shares > _READ_BY_EACH
    readers = files.most_shares if is_sent else 0
    deletes_are_rows = "delete" in wanted.row_operations
    options = leaves_unchanged, deletes_are_rows, shares, readers
    return LastChanges(files, wanted.first, wanted.last, wanted.columns, *options)


def are_too_many(shares: int, cores: Callable[[], int]) -> bool:
    """Whether these are more shares than the cluster should merge without Spark SQL: more than that has writers."""
    return shares > LEAST_WRITERS and shares > writers(cores())

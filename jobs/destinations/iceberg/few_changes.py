"""Which merges a few Spark tasks can do, each for its share of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from jobs.batch import LandedBatch
from jobs.changes.columns import CHANGES, ROWS, UNCHANGED
from jobs.changes.files import LandedFiles
from jobs.changes.landed_rows import LandedRows
from jobs.changes.last_changes import LastChanges
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.reduction import Reduction

# So many landed rows at most for a share, in so many bytes of files. A task may read all files: so shares are few.
_SHARE_CHANGES, _SHARE_BYTES, _MOST_SHARES = 250_000, 32 << 20, 8

# So many files are opened for each share: to decode them again costs less than to send their rows.
_OPENED_BY_EACH = 100


def few_changes(
    landed: LandedRows, wanted: Reduction, batches: Sequence[LandedBatch], leaves_unchanged: bool
) -> LastChanges | None:
    """What tasks can read of these batches; None where it is too much, or needs other landed rows beside it."""
    plain = wanted.mode.startswith("upsert") and wanted.keys and not wanted.order_by
    again = wanted.revised or wanted.touched
    count = sum(b.counts.landed for b in batches)
    if not plain or again or count > _MOST_SHARES * _SHARE_CHANGES:
        return None
    operations = CHANGES if wanted.mode == "upsert_delete" else ROWS
    taken = LandedFiles.up_to(batches[-1], landed).taking(operations, wanted.route)
    paths = [*(c.path for c in wanted.columns), *([(UNCHANGED.name,)] if leaves_unchanged else [])]
    files = PlannedFiles.of(taken, batches, paths)
    if files.bytes is None:
        return None
    shares = max(1, ceil(count / _SHARE_CHANGES), ceil(files.bytes / _SHARE_BYTES))
    # Whether changes keep columns is known when a task has read them: one that is alone has written nothing by then.
    if shares > (1 if leaves_unchanged else _MOST_SHARES):
        return None
    readers = files.most_shares if len(files.files or ()) > _OPENED_BY_EACH else 0
    return LastChanges(files, wanted.first, wanted.last, wanted.columns, leaves_unchanged, shares, readers)

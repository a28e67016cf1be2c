"""Which merges one Spark task can do."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.batch import LandedBatch
from jobs.changes.columns import CHANGES, ROWS, UNCHANGED
from jobs.changes.files import LandedFiles
from jobs.changes.landed_rows import LandedRows
from jobs.changes.last_changes import LastChanges
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.reduction import Reduction

# So many landed rows at most, in so many bytes of files.
_MOST_CHANGES, _MOST_BYTES = 250_000, 32 << 20


def few_changes(
    landed: LandedRows, wanted: Reduction, batches: Sequence[LandedBatch], may_keep: bool
) -> LastChanges | None:
    """What one task can read of these batches; None where it is too much, or needs other landed rows beside it."""
    plain = wanted.mode.startswith("upsert") and wanted.keys and not wanted.order_by
    again = wanted.revised or wanted.touched
    if not plain or again or sum(b.counts.landed for b in batches) > _MOST_CHANGES:
        return None
    operations = CHANGES if wanted.mode == "upsert_delete" else ROWS
    taken = LandedFiles.up_to(batches[-1], landed).taking(operations, wanted.route)
    paths = [*(c.path for c in wanted.columns), *([(UNCHANGED.name,)] if may_keep else [])]
    files = PlannedFiles.of(taken, batches, paths, landed.catalog.require(landed.identifier))
    if files.bytes is None or files.bytes > _MOST_BYTES:
        return None
    return LastChanges(files, wanted.first, wanted.last, wanted.columns, may_keep)

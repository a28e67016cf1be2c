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
_MOST_CHANGES, _MOST_BYTES = 20_000, 32 << 20
# Of batches that have no more rows each, so many: a scan by Spark costs some 10 ms for each of their small files.
_SMALL_BATCH, _MOST_OF_SMALL = 2_000, 250_000


def few_changes(
    landed: LandedRows, wanted: Reduction, batches: Sequence[LandedBatch], may_keep: bool
) -> LastChanges | None:
    """What one task can read of these batches; None where it is too much, or needs other landed rows beside it."""
    plain = wanted.mode.startswith("upsert") and wanted.keys and not wanted.order_by
    again, rows = wanted.revised or wanted.touched, sum(b.counts.landed for b in batches)
    most = _MOST_OF_SMALL if rows <= _SMALL_BATCH * len(batches) else _MOST_CHANGES
    if not plain or again or rows > most:
        return None
    operations = CHANGES if wanted.mode == "upsert_delete" else ROWS
    taken = LandedFiles.up_to(batches[-1], landed).taking(operations, wanted.route)
    paths = [*(c.path for c in wanted.columns), *([(UNCHANGED.name,)] if may_keep else [])]
    files = PlannedFiles.of(taken, batches, paths, landed.catalog.require(landed.identifier))
    if files.bytes is None or files.bytes > _MOST_BYTES:
        return None
    return LastChanges(files, wanted.first, wanted.last, wanted.columns, may_keep)

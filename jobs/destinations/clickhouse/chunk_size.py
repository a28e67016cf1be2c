"""How many offsets a chunk has: as many chunks as the cluster has cores, none too small for a part nor too large for
the memory of a task. Decided when steps are begun; their leases keep it, so that a retry is cut into the same chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.batch import LandedBatch
from jobs.changes.landed_rows import LandedRows
from jobs.offsets import total

# Of landed Parquet files. A task holds two chunks, each several times as large there.
_MOST_BYTES = 64_000_000
# Smaller inserts make more work for the server than the cores save.
_LEAST_ROWS = 50_000


@dataclass(frozen=True)
class Landed:
    """How much is to be inserted.

    Attributes:
        bytes: of its files; 0 where their snapshots are gone.
    """

    offsets: int
    bytes: int

    @classmethod
    def of(cls, batches: Sequence[LandedBatch], rows: LandedRows) -> Landed:
        wanted = {b.snapshot_id for b in batches}
        snapshots = rows.catalog.require(rows.identifier).metadata.snapshots
        added = (s.summary.get("added-files-size") for s in snapshots if s.snapshot_id in wanted and s.summary)
        return cls(sum(total(b.batch.ranges) for b in batches), sum(int(size or 0) for size in added))


def chunk_rows(landed: Landed, most: int, cores: int, most_chunks: int) -> int:
    """Offsets of a chunk.

    Args:
        most: that the pipeline file allows.
        most_chunks: that the table's deduplication window has room for: more come of `most` alone.
    """
    largest = max(landed.offsets // _LEAST_ROWS, 1)
    count = max(_parts(landed.offsets, most), min(most_chunks, _parts(landed.bytes, _MOST_BYTES)))
    # All cores have something to do until the end.
    even = _parts(count, cores) * cores
    count = max(count, min(even, most_chunks, largest))
    return max(1, _parts(landed.offsets, count))


def _parts(whole: int, size: int) -> int:
    """How many parts of this size it takes; at least one."""
    return max(1, -(-whole // size))

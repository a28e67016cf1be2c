"""The number of offsets of a chunk: so that all of the cluster's cores have work, and chunks are neither too small for
the server nor too large for a task's memory. Decided when a step is begun and kept in the lease, so that a retry is cut
into the same chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobs.batch import LandedBatch
from jobs.changes.landed_rows import LandedRows

# The most bytes of landed Parquet files in a chunk. A task holds two chunks, each several times as large in memory.
_MOST_BYTES = 64_000_000
# The fewest offsets of a chunk: smaller inserts cost the server more than more cores gain.
_LEAST_ROWS = 50_000


def landed_bytes(batches: Sequence[LandedBatch], rows: LandedRows) -> int:
    """The size of the landed files of these batches; without those whose snapshots have expired."""
    wanted = {b.snapshot_id for b in batches}
    snapshots = rows.catalog.require(rows.identifier).metadata.snapshots
    added = (s.summary.get("added-files-size") for s in snapshots if s.snapshot_id in wanted and s.summary)
    return sum(int(size or 0) for size in added)


def chunk_rows(*, offsets: int, size: int, most: int, cores: Callable[[], int], most_chunks: int) -> int:
    """The number of offsets of a chunk.

    Args:
        offsets: all that are to be inserted.
        size: of their landed files, in bytes (`landed_bytes`).
        most: the pipeline file's limit.
        cores: the number of tasks that the cluster runs at a time; called only if it matters.
        most_chunks: the chunks for which the table's deduplication window has room; only `most` may lead to more.
    """
    largest = max(offsets // _LEAST_ROWS, 1)
    count = max(_parts(offsets, most), min(most_chunks, _parts(size, _MOST_BYTES)))
    if count < min(most_chunks, largest):
        # A multiple of the cores, so that all of them have work until the end.
        even = _parts(count, there := cores()) * there
        count = max(count, min(even, most_chunks, largest))
    return max(1, _parts(offsets, count))


def _parts(whole: int, size: int) -> int:
    """The number of parts of this size, rounded up; at least one."""
    return max(1, -(-whole // size))

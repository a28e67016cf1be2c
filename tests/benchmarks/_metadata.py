"""What the process of a run spends on the metadata of its tables: each load reads all snapshots that a table keeps,
unless the catalog remembers them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from resources.iceberg_sql import _KEPT, _SNAPSHOTS

# CPU seconds for one snapshot of a metadata file: pyiceberg takes 0.52 s to read 10,000.
_A_SNAPSHOT = 50e-6
# How often a batch of a topic loads tables, counted in the code: for its landing, and for its merge into a table.
_LANDING, _MERGE = 9, 12
# Seconds between two removals of old snapshots, by the default of pipelines with `interval`.
_UPKEEP = 3600


@dataclass(frozen=True)
class Reading:
    """Of a pipeline with `for_each` and `interval`.

    Attributes:
        topics: each with a landed table.
        tables: that their batches are merged into.
        in_iceberg: these have metadata too.
        interval: seconds between two batches of a topic.
        kept: how many snapshots maintenance leaves in each table.
        snapshot: bytes of one in the metadata.
    """

    topics: int
    tables: int
    in_iceberg: bool
    interval: int
    kept: int
    snapshot: int

    def cores(self, remembers: bool) -> float:
        """Busy with it, at most: topics that are worked on side by side may take turns at each load.

        Args:
            remembers: the catalog is in a database, and keeps what it has read in memory.
        """
        return self._snapshots(remembers) * _A_SNAPSHOT

    def bytes(self, remembers: bool) -> float:
        """Read a second."""
        return self._snapshots(remembers) * self.snapshot

    def _snapshots(self, remembers: bool) -> float:
        """That are read in a second."""
        most = self.kept + _UPKEEP // self.interval
        # Between two looks at a table each other one has been read and written: what it was before is remembered too.
        files = 2 * (self.topics + (self.tables if self.in_iceberg else 0))
        if remembers and (files <= _KEPT or files * (1 + most) <= _SNAPSHOTS):
            return 0.0
        return (self.topics * _LANDING + self.tables * _MERGE) * most / self.interval

"""The state in memory, for unit tests only: same rules as KeeperMap, and it dies at a given call."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from jobs.destinations.clickhouse.state import Lease, PartitionRow, PartitionWrite
from jobs.offsets import TopicPartition
from resources.errors import CommitFailed, Interrupted


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Fuse:
    """Ends the process before its n-th outside effect, or right after it."""

    left: int = 10**9
    after: bool = False

    def burn(self) -> bool:
        """True where the effect still happens and the process ends after it."""
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        return self.left == 0


@dataclass
class MemoryStore:
    """The twin of `KeeperStore`; `shared` outlives the process."""

    shared: MemoryStore | None = None
    fuse: Fuse = field(default_factory=Fuse)
    row: Lease | None = None
    rows: dict[TopicPartition, tuple[int, PartitionRow]] = field(default_factory=dict)
    changes: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def _there(self) -> MemoryStore:
        return self.shared or self

    def lease(self) -> Lease | None:
        return self._there.row

    def swap(self, seen: Lease | None, new: Lease) -> Lease:
        last = self.fuse.burn()
        there = self._there
        now = there.row
        if seen and seen.owner and now and now.owner != seen.owner:
            raise Interrupted("taken over")
        if (now.change if now else None) != (seen.change if seen else None):
            raise CommitFailed("another run was faster")
        there.row = replace(new, change=str(next(there.changes)))
        if last:
            raise Killed
        return there.row

    def partitions(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionRow]:
        return {tp: self._there.rows[tp][1] for tp in wanted if tp in self._there.rows}

    def write(self, held: Lease, rows: PartitionWrite, known: Collection[TopicPartition]) -> None:
        assert set(known) & set(rows.spans) == set(self._there.rows) & set(rows.spans)
        last = self.fuse.burn()
        for tp in rows.spans:
            epoch = self._there.rows[tp][0] if tp in self._there.rows else 0
            if epoch > held.epoch and rows.confirms:
                continue
            if epoch > held.epoch:
                raise Interrupted("taken over")
            self._there.rows[tp] = (held.epoch, rows.row(tp))
        if last:
            raise Killed

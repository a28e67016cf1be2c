"""How the offset ranges of a batch become tasks: by records and cores, not by the number of partitions. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.offsets import Ranges

# A task of fewer records would be over before it is worth its start.
_WORTH_A_TASK = 50_000
# Of a large batch each core gets its share in pieces, so that none waits long for the last one.
_PIECES = 2


@dataclass(frozen=True)
class Read:
    """Ranges that are read by one source of Spark.

    Attributes:
        ranges: what is read.
        pieces: into how many they are cut, large ranges into more than small ones; None: one for each range.
        tasks: into how many tasks they are packed; None: one task a piece.
    """

    ranges: Ranges
    pieces: int | None = None
    tasks: int | None = None


def plan_reads(ranges: Ranges, cores: int) -> list[Read]:
    """Cuts what is large and packs what is small. Empty ranges are left out.

    Args:
        cores: tasks that the cluster runs at a time.
    """
    present = {tp: r for tp, r in ranges.items() if len(r)}
    records = sum(map(len, present.values()))
    tasks = _tasks(records, len(present), cores)
    share = records / tasks if tasks else 0
    large = {tp: r for tp, r in present.items() if len(r) > share}
    small = {tp: r for tp, r in present.items() if len(r) <= share}
    of_large = round(sum(map(len, large.values())) / share) if large else 0
    reads = [Read(large, pieces=max(of_large, len(large)))] if large else []
    if small:
        left = max(tasks - of_large, 1)
        reads.append(Read(small, tasks=left if left < len(small) else None))
    return reads


def _tasks(records: int, ranges: int, cores: int) -> int:
    """As many as are worth it; of a small batch as many as read partitions side by side."""
    worth = -(-records // _WORTH_A_TASK)
    return max(min(worth, _PIECES * cores), min(ranges, cores)) if ranges else 0

"""How the offset ranges of a batch become tasks: by records and cores, not by the number of partitions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.offsets import Ranges

# A task of fewer records, or of fewer ranges, would be over before it is worth its start.
_WORTH_A_TASK, _RANGES_WORTH_A_TASK = 50_000, 1_000
# The records of a smaller range cost less than a consumer of Spark's Kafka source.
_WORTH_A_CONSUMER = 5_000
# Of a large batch each core gets its share in pieces, so that none waits long for the last one.
_PIECES = 2


@dataclass(frozen=True)
class Read:
    """Ranges that Spark's Kafka source reads, each piece by a consumer.

    Attributes:
        pieces: into how many they are cut, large ranges into more than small ones; None: one for each range.
        tasks: into how many tasks they are packed; None: one task a piece.
    """

    ranges: Ranges
    pieces: int | None = None
    tasks: int | None = None


@dataclass(frozen=True)
class Splits:
    """
    Attributes:
        reads: of large ranges.
        packed: shares of small ranges, each of which one task reads by one consumer.
    """

    reads: Sequence[Read] = ()
    packed: Sequence[Ranges] = ()


def plan_reads(ranges: Ranges, cores: Callable[[], int]) -> Splits:
    """Cuts what is large and packs what is small. Empty ranges are left out.

    Args:
        cores: tasks that the cluster runs at a time; asked for where one task is not enough.
    """
    small = {tp: r for tp, r in ranges.items() if 0 < len(r) <= _WORTH_A_CONSUMER}
    large = {tp: r for tp, r in ranges.items() if len(r) > _WORTH_A_CONSUMER}
    return Splits(_reads(large, cores()) if large else (), _shares(small, cores))


def _shares(ranges: Ranges, cores: Callable[[], int]) -> list[Ranges]:
    worth = max(-(-_records(ranges) // _WORTH_A_TASK), -(-len(ranges) // _RANGES_WORTH_A_TASK))
    tasks = min(worth, _PIECES * cores()) if worth > 1 else worth
    # Dealt out by size, so that each has as many ranges and about as many records.
    by_size = sorted(ranges, key=lambda tp: (-len(ranges[tp]), tp))
    return [{tp: ranges[tp] for tp in by_size[n::tasks]} for n in range(tasks)]


def _reads(ranges: Ranges, cores: int) -> list[Read]:
    tasks = max(min(-(-_records(ranges) // _WORTH_A_TASK), _PIECES * cores), min(len(ranges), cores))
    share = _records(ranges) / tasks
    cut = {tp: r for tp, r in ranges.items() if len(r) > share}
    whole = {tp: r for tp, r in ranges.items() if len(r) <= share}
    of_cut = round(_records(cut) / share)
    reads = [Read(cut, pieces=max(of_cut, len(cut)))] if cut else []
    if whole:
        left = max(tasks - of_cut, 1)
        reads.append(Read(whole, tasks=left if left < len(whole) else None))
    return reads


def _records(ranges: Ranges) -> int:
    return sum(map(len, ranges.values()))

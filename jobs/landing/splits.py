"""Divides the offset ranges of a batch into tasks: by records, bytes and cores, not by their partitions. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from jobs.offsets import OffsetRange, Ranges, TopicPartition

# With fewer records than this for each, more tasks would cost more than they save.
_WORTH_A_TASK = 50_000
# The same in bytes, as earlier records take in landed files: these are compressed.
_BYTES_WORTH_A_TASK = 16 << 20
# The same in offset ranges.
_RANGES_WORTH_A_TASK = 2_500
# Tasks per core for large batches, so that no core waits long for the last one.
_PIECES = 2
# The cost of a range in addition to its records, in small records: it takes part in fetches, and its end is awaited.
_OF_A_RANGE = 100


def plan_shares(ranges: Ranges, cores: Callable[[], int], size: float = 0) -> list[Ranges]:
    """Shares of about the same cost, each for one task with one consumer: large ranges are cut, small ones packed.

    The ranges are laid end to end by topic and partition, and cut into equal parts. So each share, and each file that
    its task writes, has a contiguous range of the batch's positions (`i`). Empty ranges are left out.

    Args:
        cores: the number of tasks that the cluster runs at a time; called only if one task is not enough.
        size: about how many bytes the records will take in landed files; 0: not known.
    """
    wanted = {tp: ranges[tp] for tp in sorted(ranges) if len(ranges[tp])}
    if not wanted:
        return []
    records = sum(map(len, wanted.values()))
    worth = max(
        ceil(records / _WORTH_A_TASK), ceil(len(wanted) / _RANGES_WORTH_A_TASK), ceil(size / _BYTES_WORTH_A_TASK)
    )
    if worth <= 1:
        return [wanted]
    tasks = min(worth, records, _PIECES * cores())
    small_records = max(1, size / _BYTES_WORTH_A_TASK / (records / _WORTH_A_TASK))
    of_a_range = _OF_A_RANGE / small_records
    cost = (records + len(wanted) * of_a_range) / tasks
    shares: list[dict[TopicPartition, OffsetRange]] = [{}]
    room = cost
    for tp, offsets in wanted.items():
        start = offsets.start
        while len(shares) < tasks and offsets.end - start + of_a_range > room:
            cut = min(start + max(round(room - of_a_range), 0), offsets.end - 1)
            if cut > start:
                shares[-1][tp] = OffsetRange(start, cut)
            start, room = cut, cost
            shares.append({})
        shares[-1][tp] = OffsetRange(start, offsets.end)
        room -= offsets.end - start + of_a_range
    return [share for share in shares if share]

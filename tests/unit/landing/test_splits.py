"""Large ranges are cut, small ones packed, by records and cores."""

from __future__ import annotations

import pytest

from jobs.landing.splits import Read, plan_reads
from jobs.offsets import OffsetRange, TopicPartition


def ranges(*sizes: int) -> dict[TopicPartition, OffsetRange]:
    return {TopicPartition("t", n): OffsetRange(10, 10 + size) for n, size in enumerate(sizes)}


def shape(reads: list[Read]) -> list[tuple[int, int | None, int | None]]:
    return [(len(read.ranges), read.pieces, read.tasks) for read in reads]


@pytest.mark.parametrize(
    ("sizes", "cores", "expected"),
    [
        pytest.param([], 4, [], id="nothing"),
        pytest.param([0, 0], 4, [], id="empty ranges"),
        pytest.param([300, 300], 4, [(2, None, None)], id="a small batch: partitions side by side"),
        pytest.param([0, 300], 4, [(1, None, None)], id="one of them is empty"),
        pytest.param([10] * 5000, 4, [(5000, None, 4)], id="thousands of small ones are packed"),
        pytest.param([1_000_000], 4, [(1, 8, None)], id="one partition is cut"),
        pytest.param([500_000] * 4, 2, [(4, None, None)], id="as many as tasks"),
        pytest.param([500_000] * 3, 2, [(3, 4, None)], id="fewer than tasks"),
        pytest.param([800_000, *[100] * 2000], 2, [(1, 3, None), (2000, None, 1)], id="a hot one beside small ones"),
        pytest.param([60_000], 64, [(1, 2, None)], id="no more tasks than are worth it"),
    ],
)
def test_cut_and_packed(sizes: list[int], cores: int, expected: list[tuple[int, int | None, int | None]]) -> None:
    reads = plan_reads(ranges(*sizes), cores)
    assert shape(reads) == expected
    read = {tp: r for one in reads for tp, r in one.ranges.items()}
    assert read == {tp: r for tp, r in ranges(*sizes).items() if len(r)}

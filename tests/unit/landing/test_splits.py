"""Large ranges are cut, small ones packed, by records and cores."""

from __future__ import annotations

import pytest

from jobs.landing.splits import Splits, plan_reads
from jobs.offsets import OffsetRange, TopicPartition


def ranges(*sizes: int) -> dict[TopicPartition, OffsetRange]:
    return {TopicPartition("t", n): OffsetRange(10, 10 + size) for n, size in enumerate(sizes)}


def shape(splits: Splits) -> tuple[list[tuple[int, int | None, int | None]], list[int]]:
    reads = [(len(read.ranges), read.pieces, read.tasks) for read in splits.reads]
    return reads, [len(share) for share in splits.packed]


@pytest.mark.parametrize(
    ("sizes", "cores", "reads", "packed"),
    [
        pytest.param([], 4, [], [], id="nothing"),
        pytest.param([0, 0], 4, [], [], id="empty ranges"),
        pytest.param([300, 300], 4, [], [2], id="a small batch: one task"),
        pytest.param([0, 300], 4, [], [1], id="one of them is empty"),
        pytest.param([10] * 5000, 4, [], [1000] * 5, id="thousands of small ones are packed"),
        pytest.param([10] * 5000, 2, [], [1250] * 4, id="on few cores"),
        pytest.param([5000] * 30, 2, [], [10] * 3, id="into more tasks where they have more records"),
        pytest.param([10_000] * 300, 2, [(300, None, 4)], [], id="larger ones into as many tasks as run at a time"),
        pytest.param([1_000_000], 4, [(1, 8, None)], [], id="one partition is cut"),
        pytest.param([500_000] * 4, 2, [(4, None, None)], [], id="as many as tasks"),
        pytest.param([500_000] * 3, 2, [(3, 4, None)], [], id="fewer than tasks"),
        pytest.param([800_000, *[100] * 2000], 2, [(1, 4, None)], [500] * 4, id="a hot one beside small ones"),
        pytest.param([800_000, 20_000], 2, [(1, 4, None), (1, None, None)], [], id="a hot one beside a cooler one"),
        pytest.param([60_000], 64, [(1, 2, None)], [], id="no more tasks than are worth it"),
    ],
)
def test_cut_and_packed(
    sizes: list[int], cores: int, reads: list[tuple[int, int | None, int | None]], packed: list[int]
) -> None:
    splits = plan_reads(ranges(*sizes), lambda: cores)
    assert shape(splits) == (reads, packed)
    read = [(tp, r) for some in (*(one.ranges for one in splits.reads), *splits.packed) for tp, r in some.items()]
    assert sorted(read) == [(tp, r) for tp, r in ranges(*sizes).items() if len(r)]


def test_records_are_shared_out_evenly() -> None:
    one, two = plan_reads(ranges(*[5000] * 10, *[1] * 1000), lambda: 2).packed
    assert (len(one), len(two)) == (505, 505)
    assert sum(map(len, one.values())) == sum(map(len, two.values())) == 25_500


def test_cores_are_asked_for_only_where_they_matter() -> None:
    def asked() -> int:
        raise AssertionError

    assert plan_reads(ranges(*[10] * 100), asked).packed

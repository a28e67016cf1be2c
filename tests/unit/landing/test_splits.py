"""Large ranges are cut, small ones packed, by records and cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.landing.splits import plan_shares
from jobs.offsets import OffsetRange, Ranges, TopicPartition


def ranges(*sizes: int) -> dict[TopicPartition, OffsetRange]:
    return {TopicPartition("t", n): OffsetRange(10, 10 + size) for n, size in enumerate(sizes)}


def shape(shares: list[Ranges]) -> list[tuple[int, int]]:
    """Of each share how many ranges it has, and how many thousands of records, a hundred more or less."""
    return [(len(share), round((sum(map(len, share.values())) - 150) / 1000)) for share in shares]


@pytest.mark.parametrize(
    ("sizes", "cores", "shares"),
    [
        pytest.param([], 4, [], id="nothing"),
        pytest.param([0, 0], 4, [], id="empty ranges"),
        pytest.param([300, 300], 4, [(2, 0)], id="a small batch: one task"),
        pytest.param([0, 40_000], 4, [(1, 40)], id="one of them is empty"),
        pytest.param([10] * 5000, 4, [(2500, 25)] * 2, id="thousands of small ones are packed"),
        pytest.param([10] * 20_000, 2, [(5000, 50)] * 4, id="on few cores"),
        pytest.param([1_000_000], 4, [(1, 125)] * 8, id="one partition is cut"),
        pytest.param([500_000] * 4, 2, [(1, 500)] * 4, id="as many as tasks"),
        pytest.param([500_000] * 3, 2, [(1, 375), (2, 375), (2, 375), (1, 375)], id="fewer than tasks"),
        pytest.param([60_000], 64, [(1, 30)] * 2, id="no more tasks than are worth it"),
    ],
)
def test_cut_and_packed(sizes: list[int], cores: int, shares: list[tuple[int, int]]) -> None:
    assert shape(plan_shares(ranges(*sizes), lambda: cores)) == shares


def test_a_hot_partition_beside_thousands_of_small_ones_is_shared_out_evenly() -> None:
    found = plan_shares(ranges(400_000, *[100] * 2000), lambda: 2)
    costs = [sum(len(offsets) + 100 for offsets in share.values()) for share in found]
    assert max(costs) - min(costs) < 500, "a range has a cost of its own beside its records"


@given(sizes=st.lists(st.one_of(st.integers(0, 300), st.integers(0, 300_000)), max_size=40), cores=st.integers(1, 50))
def test_every_offset_is_in_one_share_and_shares_follow_each_other(sizes: list[int], cores: int) -> None:
    wanted = ranges(*sizes)
    found = plan_shares(wanted, lambda: cores)
    pieces = [(tp, offsets.start, offsets.end) for share in found for tp, offsets in share.items()]
    assert all(start < end for _, start, end in pieces)
    assert pieces == sorted(pieces)
    joined: dict[TopicPartition, list[int]] = {}
    for tp, start, end in pieces:
        known = joined.setdefault(tp, [start, start])
        assert known[1] == start, "each piece begins where the one before it ends"
        known[1] = end
    assert joined == {tp: [r.start, r.end] for tp, r in wanted.items() if len(r)}


@pytest.mark.parametrize(
    ("size", "cores", "tasks"), [(1e6, 64, 1), (640 << 20, 64, 40), (640 << 20, 2, 4), (9e12, 64, 5)]
)
def test_few_large_records_are_shared_out_by_their_bytes(size: float, cores: int, tasks: int) -> None:
    found = plan_shares(ranges(5 if size > 1e12 else 40_000), lambda: cores, size)
    assert len(found) == tasks, "not more tasks than records"


def test_cores_are_asked_for_only_where_they_matter() -> None:
    def asked() -> int:
        raise AssertionError

    assert plan_shares(ranges(*[10] * 100), asked)

"""Division of items into groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.groups import balanced


def test_large_and_small_items_are_spread_over_the_groups() -> None:
    """Two files with a full row group and a rest each: no task gets both of the full ones."""
    assert [sum(group) for group in balanced([60, 40, 60, 40], float, 2)] == [100, 100]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50), st.integers(1, 50))
def test_balanced_groups_hold_each_item_once_and_in_order(sizes: list[int], number: int) -> None:
    items = list(enumerate(sizes))
    groups = balanced(items, lambda item: item[1], number)
    assert len(groups) == number
    assert sorted(item for group in groups for item in group) == items
    assert all(group == sorted(group) for group in groups)
    assert all(groups) or number > len(items), "a group is empty only if there are too few items"
    totals = [sum(size for _, size in group) for group in groups]
    assert max(totals) - min(totals) <= max(sizes)

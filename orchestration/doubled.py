"""Pauses that grow: twice as long each time."""

from __future__ import annotations

# Of any pause, so often is longer than the longest one that anybody waits.
_ENOUGH = 30


def doubled(first: float, times: int, longest: float) -> float:
    """Seconds: the first ones, doubled so many times, but no more than the longest."""
    return min(first * (1 << min(times, _ENOUGH)), longest)

"""Pauses that grow: twice as long each time."""

from __future__ import annotations

# Doublings after which any pause is longer than the longest that anybody waits.
_ENOUGH = 30


def doubled(first: float, times: int, longest: float) -> float:
    """The pause `first`, doubled `times` times, but at most `longest`."""
    return min(first * (1 << min(times, _ENOUGH)), longest)

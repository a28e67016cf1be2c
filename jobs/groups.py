"""Divides items into groups of limited size, for statements, files or memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def filled(rows: int, size: int, most_rows: int, most_bytes: int) -> float:
    """The part of a group that these rows fill, by their number or by their bytes."""
    return max(rows / most_rows, size / most_bytes)


def groups(items: Iterable[T], size: Callable[[T], float], most: float) -> Iterator[list[T]]:
    """Groups of consecutive items that together are no larger than `most`; a larger item alone."""
    group, total = list[T](), 0.0
    for item in items:
        more = size(item)
        if group and total + more > most:
            yield group
            group, total = [], 0.0
        group.append(item)
        total += more
    if group:
        yield group


def balanced(items: Sequence[T], size: Callable[[T], float], number: int) -> list[list[T]]:
    """So many groups of about the same size, each in the order of its items."""
    found: list[list[int]] = [[] for _ in range(number)]
    least = [(0.0, group) for group in range(number)]
    # The largest first, each to the group that is the smallest then (Graham's rule, at most 4/3 of the best).
    for item in sorted(range(len(items)), key=lambda n: -size(items[n])):
        total, group = least[0]
        found[group].append(item)
        heapq.heapreplace(least, (total + size(items[item]), group))
    return [[items[n] for n in sorted(group)] for group in found]

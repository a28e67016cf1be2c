"""Divides items into groups of limited size, for statements, files or memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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

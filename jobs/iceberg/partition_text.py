"""Partitions of an Iceberg table as a pipeline file writes them: ``day(scheduled)``, ``bucket(16, id)``, ``origin``."""

from __future__ import annotations

import re
from dataclasses import dataclass

TIMES = ("year", "month", "day", "hour")
WIDE = ("bucket", "truncate")
REMEDY = "write a column, year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(n, c)"
_CALL = re.compile(r"(?P<name>\w+)\(\s*(?:(?P<width>[1-9]\d*)\s*,\s*)?(?P<column>\w+)\s*\)")


@dataclass(frozen=True)
class Partition:
    """One part of a partition.

    Attributes:
        transform: ``identity``, one of `TIMES`, or one of `WIDE`, which have a width.
    """

    column: str
    transform: str = "identity"
    width: int | None = None


def parse_partition(text: str) -> Partition | None:
    """What a text says; None where it says nothing that Iceberg knows."""
    text = text.strip()
    if re.fullmatch(r"\w+", text):
        return Partition(text)
    found = _CALL.fullmatch(text)
    if found is None:
        return None
    name, width = found["name"], found["width"]
    if (name in TIMES and width is None) or (name in WIDE and width):
        return Partition(found["column"], name, int(width) if width else None)
    return None

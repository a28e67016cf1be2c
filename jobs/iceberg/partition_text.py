"""Partitions of an Iceberg table as a pipeline file writes them: ``day(scheduled)``, ``bucket(16, id)``, ``origin``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from jobs.schema.types import is_own

TIMES = ("year", "month", "day", "hour")
WIDE = ("bucket", "truncate")
REMEDY = "write a column, year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(n, c)"
_CALL = re.compile(r"(?P<name>\w+)\(\s*(?:(?P<width>[1-9]\d*)\s*,\s*)?(?P<column>\w+)\s*\)")


@dataclass(frozen=True)
class Partition:
    """One field of a partition spec.

    Attributes:
        transform: ``identity``, one of `TIMES`, or one of `WIDE`, which have a width.
    """

    column: str
    transform: str = "identity"
    width: int | None = None

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{self.column})"

    def suits(self, kind: pa.DataType) -> bool:
        """Whether Iceberg and Spark have the transform for columns of this type (Iceberg's specification: "Partition
        Transforms")."""
        types = pa.types
        if is_own(kind):
            return False  # Spark, which writes and compacts partitions, takes them for those of text
        if self.transform == "identity":
            return not types.is_nested(kind)
        if types.is_date(kind) or types.is_timestamp(kind):
            return self.transform != "truncate" and (self.transform != "hour" or types.is_timestamp(kind))
        cut = types.is_integer(kind) or types.is_decimal(kind) or types.is_string(kind) or types.is_binary(kind)
        return self.transform in WIDE and cut


def parse_partition(text: str) -> Partition | None:
    """The parsed text; None if it is no partition transform of Iceberg."""
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

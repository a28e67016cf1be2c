"""The numbers among the properties of an Iceberg table that we, or pyiceberg, read when we write to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

PARQUET, METRICS = "write.parquet.", "write.metadata.metrics."
TARGET_BYTES = "write.target-file-size-bytes"
LEVEL = PARQUET + "compression-level"
REMEDY = "write a whole number without a unit, such as 67108864 for 64 MB"

# With Iceberg's defaults.
_SIZES = {
    TARGET_BYTES: 512 << 20,
    PARQUET + "row-group-limit": 1 << 20,
    PARQUET + "page-size-bytes": 1 << 20,
    PARQUET + "dict-size-bytes": 2 << 20,
    PARQUET + "page-row-limit": 20_000,
}
_COUNTS = {
    METRICS + "max-inferred-column-defaults": 100,
    "write.metadata.previous-versions-max": 100,
    "write.summary.partition-limit": 0,
}
_DEFAULTS = {**_SIZES, **_COUNTS}
_FORMS = {
    **dict.fromkeys(_SIZES, re.compile(r"0*[1-9]\d*", re.ASCII)),
    **dict.fromkeys(_COUNTS, re.compile(r"\d+", re.ASCII)),
    LEVEL: re.compile(r"-?\d+|null", re.ASCII),
}


def number(properties: Mapping[str, str], name: str) -> int:
    """The value of one of these properties, or Iceberg's default."""
    return int(properties.get(name, _DEFAULTS[name]))


def without_number(properties: Mapping[str, str]) -> Iterator[str]:
    """The properties that should be numbers and are none, with which no file can be written."""
    return (name for name, form in _FORMS.items() if name in properties and not form.fullmatch(properties[name]))

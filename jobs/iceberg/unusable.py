"""Properties of an Iceberg table with which no data file can be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobs.iceberg.numbers import LEVEL, PARQUET, REMEDY, without_number

CODEC = PARQUET + "compression-codec"
# Of Iceberg's own, all but LZO, which Arrow cannot write.
_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
_ALIASES = ("none", "lz4_raw")
_MOST_OF_GZIP = 9


def unusable(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The properties with a value that they cannot have, each with a remedy."""
    bad = list(without_number(properties))
    yield from ((name, REMEDY) for name in bad)
    codec = properties.get(CODEC, "zstd").lower()
    if codec not in (*_CODECS, *_ALIASES):
        yield CODEC, f"use one of {', '.join(_CODECS)}"
    level = properties.get(LEVEL, "null")
    if codec == "gzip" and LEVEL not in bad and level != "null" and int(level) > _MOST_OF_GZIP:
        yield LEVEL, f"gzip has levels up to {_MOST_OF_GZIP}: use one of them, or zstd"

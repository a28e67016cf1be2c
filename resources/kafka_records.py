"""Kafka's records as Arrow: what reads them, what decodes them and what lands them agree on these columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
INSTANT = pa.timestamp("us", "UTC")

# The column of headers: all of them, or some.
_HEADER_COLUMNS = ("headers", "some_headers")
_RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", INSTANT),
    ]
)


WantedHeaders = bool | frozenset[str]
"""Which headers of records are read: all, none, or those of a few names (others cost as much as the record itself)."""


def records_schema(headers: WantedHeaders) -> pa.Schema:
    """The columns of records: with all `headers`, `some_headers`, or neither; null where a record has none of them."""
    return _RECORDS.append(pa.field(_HEADER_COLUMNS[headers is not True], HEADERS)) if headers else _RECORDS


def header_column(names: Collection[str]) -> str | None:
    """The column of headers among these of records; None: they were read without headers."""
    return next((name for name in _HEADER_COLUMNS if name in names), None)


def combined(wanted: Iterable[WantedHeaders]) -> WantedHeaders:
    """The headers to read if all of these are wanted."""
    found = list(wanted)
    return True in found or frozenset[str]().union(*(names for names in found if isinstance(names, frozenset)))

"""Kafka's records as Arrow: what reads them, what decodes them and what lands them agree on these columns."""

from __future__ import annotations

import pyarrow as pa

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
INSTANT = pa.timestamp("us", "UTC")

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


def records_schema(headers: bool) -> pa.Schema:
    """The columns of records, with or without their headers (null where a record has none)."""
    return _RECORDS.append(pa.field("headers", HEADERS)) if headers else _RECORDS

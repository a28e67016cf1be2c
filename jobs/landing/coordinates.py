"""The struct ``kafka`` of landed rows: a record's coordinates, and other metadata that tables need. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from jobs.changes.columns import KAFKA
from jobs.spec.metadata import HEADER, RECORD, Metadata


def kafka_struct(batch: pa.RecordBatch, wanted: Sequence[Metadata], landed_at: int) -> pa.StructArray:
    """
    Args:
        batch: records as Kafka's reader returns them.
        wanted: metadata to land besides the coordinates (`jobs.spec.metadata.landed_on_request`).
        landed_at: milliseconds, for what Kafka Connect's sinks call the time of insertion.
    """
    arrays = [batch.column(f.name).cast(f.type) for f in KAFKA]
    fields = list(KAFKA)
    for one in wanted:
        arrays.append(_values(batch, one, landed_at).cast(one.type))
        fields.append(pa.field(one.path[-1], one.type))
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _values(batch: pa.RecordBatch, wanted: Metadata, landed_at: int) -> pa.Array:
    if wanted.what == "key":
        return _texts(batch.column("key").to_pylist())
    if wanted.what == "record":
        parts = [batch.column(name).cast(RECORD.field(name).type) for name in ("topic", "partition", "offset")]
        time = pa.scalar(datetime.fromtimestamp(landed_at / 1000, UTC), RECORD.field("insertTime").type)
        return pa.StructArray.from_arrays([*parts, pa.repeat(time, batch.num_rows)], fields=list(RECORD))
    if "headers" not in batch.schema.names:  # dead letters that were landed without headers
        return pa.nulls(batch.num_rows, pa.string())
    headers = batch.column("headers").to_pylist()
    if wanted.what == "headers":
        return pa.array([_json(found) if found else None for found in headers], pa.string())
    name = wanted.what.removeprefix(HEADER)
    return _texts([next((h["value"] for h in reversed(found or []) if h["key"] == name), None) for found in headers])


def _json(headers: Sequence[dict[str, Any]]) -> str:
    """Headers as a JSON object of name to value, or to a list of values if a name occurs more than once."""
    found: dict[str, list[str | None]] = {}
    for header in headers:
        found.setdefault(header["key"], []).append(_text(header["value"]))
    return json.dumps({name: values[0] if len(values) == 1 else values for name, values in found.items()},
                      ensure_ascii=False)  # fmt: skip


def _texts(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: bytes | None) -> str | None:
    """Bytes as text; as base64 if they are not UTF-8."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()

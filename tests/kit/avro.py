"""Avro records for tests, written by fastavro."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro


def encoded(schema: dict[str, Any], value: Any, schema_id: int | None = None) -> bytes:
    """One record; with a schema id, in Confluent's wire format."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    prefix = b"" if schema_id is None else b"\x00" + schema_id.to_bytes(4, "big")
    return prefix + stream.getvalue()


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def text(schema: dict[str, Any]) -> str:
    return json.dumps(schema)

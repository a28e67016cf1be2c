"""Events of an Iceberg sink's control topic, as its workers write them."""

from __future__ import annotations

import io
import json
import struct

import fastavro

_EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "type", "type": "int"},
        {"name": "group_id", "type": "string"},
        {
            "name": "payload",
            "type": {
                "type": "record",
                "name": "DataWritten",
                "fields": [
                    {
                        "name": "table_reference",
                        "type": {
                            "type": "record",
                            "name": "TableReference",
                            "fields": [
                                {"name": "catalog", "type": "string"},
                                {"name": "namespace", "type": {"type": "array", "items": "string"}},
                                {"name": "name", "type": "string"},
                            ],
                        },
                    },
                    {"name": "data_files", "type": ["null", {"type": "array", "items": "string"}]},
                ],
            },
        },
    ],
}


def event(group: str, table: str, files: list[str] | None, kind: int = 1) -> bytes:
    """An event as Iceberg's AvroEncoderUtil frames it."""
    namespace, name = table.split(".")
    reference = {"catalog": "c", "namespace": [namespace], "name": name}
    payload = {"table_reference": reference, "data_files": files}
    record = {"id": "1", "type": kind, "group_id": group, "payload": payload}
    out, schema = io.BytesIO(), json.dumps(_EVENT).encode()
    fastavro.schemaless_writer(out, _EVENT, record)
    return b"aVR\x01" + struct.pack(">i", len(schema)) + schema + out.getvalue()

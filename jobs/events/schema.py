"""The Avro schemas of control events. Each message contains the schema with which it was written.

To change them: add a field with a default, or rename one with `aliases`; never reuse a name for another meaning. So
new readers accept old events, and old readers skip what they do not know.
"""

from __future__ import annotations

from typing import Any

from fastavro import parse_schema

Schema = dict[str, Any]

_NAMESPACE = "batchmerge.control"
_INSTANT = {"type": "long", "logicalType": "timestamp-millis"}
# One array per topic, indexed by partition, null for partitions without a value: small for thousands of partitions.
_OFFSETS = {"type": "map", "values": {"type": "array", "items": ["null", "long"]}}


def _optional(kind: object) -> list[object]:
    return ["null", kind]


def _field(name: str, kind: object, doc: str = "", **more: object) -> Schema:
    return {"name": name, "type": kind, **({"doc": doc} if doc else {}), **more}


_COMMIT_ID = _field("commit_id", "string", "UUID of the batch")
_BATCH_NUMBER = _field("batch_number", "long", "goes up by one, never restarts", default=0)
_VTTS = _field("vtts", _optional(_INSTANT), "valid-through timestamp; null until every partition is seen", default=None)
_CAUGHT_UP = _field(
    "caught_up_through", _optional(_INSTANT), "as vtts, but a partition read to its end counts as now", default=None
)
_CONNECTION = _field("connection", "string", "name of the system's connection", default="")

_DATA_FILE = {
    "type": "record",
    "name": "DataFile",
    "fields": [
        _field("path", "string"),
        _field("format", "string", "PARQUET, ORC or AVRO", default=""),
        _field("records", "long", default=0),
        _field("bytes", "long", default=0),
    ],
}

_PAYLOADS: dict[str, tuple[str, list[Schema]]] = {
    "commit_request": (
        "CommitRequest",
        [
            _COMMIT_ID,
            _BATCH_NUMBER,
            _field("previous_commit_id", _optional("string"), "null for a pipeline's first batch", default=None),
            _field("planned_at", _optional(_INSTANT), default=None),
            _field("records", "long", "offsets in the batch: an upper bound of its records", default=0),
        ],
    ),
    "commit_response": (
        "CommitResponse",
        [
            _COMMIT_ID,
            _BATCH_NUMBER,
            _CONNECTION,
            _field("table", "string", "the intermediate table"),
            _field("data_files", {"type": "array", "items": _DATA_FILE}, default=[]),
            _field("delete_files", {"type": "array", "items": "DataFile"}, default=[]),
            _field("files", "long", "how many there are; the lists end at 10,000", default=0),
            _field("counts", {"type": "map", "values": "long"}, "read, landed, quarantined, filtered", default={}),
        ],
    ),
    "commit_ready": (
        "CommitReady",
        [
            _COMMIT_ID,
            _BATCH_NUMBER,
            _field("start_offsets", _OFFSETS, "first offset of the batch, per topic and partition", default={}),
            _field("next_offsets", _OFFSETS, "first offset after the batch, per topic and partition", default={}),
        ],
    ),
    "commit_table": (
        "CommitTable",
        [
            _COMMIT_ID,
            _BATCH_NUMBER,
            _CONNECTION,
            _field("table", "string", "the destination table"),
            _field("reference", _optional("string"), "snapshot id, job id or query id of the commit", default=None),
            _VTTS,
            _CAUGHT_UP,
        ],
    ),
    "commit_complete": ("CommitComplete", [_COMMIT_ID, _BATCH_NUMBER, _VTTS, _CAUGHT_UP]),
}


def _event(payload: str, fields: list[Schema]) -> Schema:
    parsed: Schema = parse_schema(  # type: ignore[assignment]  # a record's schema is a dict
        {
            "type": "record",
            "name": "Event",
            "namespace": _NAMESPACE,
            "fields": [
                _field("id", "string", "the same for every repetition of this event"),
                _field("timestamp", _INSTANT, "when it was sent"),
                _field("type", "string"),
                _field("group", "string", "the pipeline"),
                _field("run_id", "string", "who sent it", default=""),
                _field("payload", {"type": "record", "name": payload, "fields": fields}),
            ],
        }
    )
    return parsed


SCHEMAS: dict[str, Schema] = {kind: _event(name, fields) for kind, (name, fields) in _PAYLOADS.items()}

"""The five control events as values, and their bytes: a single-record Avro object container file.

Such a file begins with its own schema, so that any Avro tool can read a message without a registry. The schema follows
from the dataclasses; `Annotated` says what Avro needs besides (a default where Python has none: for older messages).

To change them: add a field with a default, or rename one with `aliases`; never reuse a name for another meaning. So
new readers accept old events, and old readers skip what they do not know.
"""

from __future__ import annotations

import dataclasses
import io
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, get_type_hints

import fastavro

from jobs import offsets
from jobs.offsets import Offsets

Schema = dict[str, Any]
_INSTANT = {"type": "long", "logicalType": "timestamp-millis"}
_TYPES: dict[object, object] = {
    str: "string",
    int: "long",
    str | None: ["null", "string"],
    datetime | None: ["null", _INSTANT],
    Mapping[str, int]: {"type": "map", "values": "long"},
    # One array per topic, indexed by partition, null for partitions without a value: small for thousands of partitions.
    Offsets: {"type": "map", "values": {"type": "array", "items": ["null", "long"]}},
}

_CommitId = Annotated[str, {"doc": "UUID of the batch"}]
_BatchNumber = Annotated[int, {"doc": "goes up by one, never restarts", "default": 0}]
_Connection = Annotated[str, {"doc": "name of the system's connection", "default": ""}]
_Vtts = Annotated[datetime | None, {"doc": "valid-through timestamp; null until every partition is seen"}]
_CaughtUp = Annotated[datetime | None, {"doc": "as vtts, but a partition read to its end counts as now"}]


def _fields(kind: type) -> list[Schema]:
    """The Avro fields of a dataclass."""
    plain, annotated = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    found = []
    for f in dataclasses.fields(kind):
        more: Schema = getattr(annotated[f.name], "__metadata__", ({},))[0]
        default = {} if f.default is dataclasses.MISSING else {"default": f.default}
        found.append({"name": f.name, "type": _TYPES.get(plain[f.name]), **default, **more})
    return found


# The namespace of uuid5 for event ids; never change it.
_SPACE = uuid.UUID("7a1b6c1e-2f0a-5d0c-9a55-0d9d3c6f3b10")


@dataclass(frozen=True)
class CommitRequest:
    """A batch is about to be landed. If it is abandoned, nothing follows for it, and another one is requested."""

    type: ClassVar[str] = "commit_request"
    commit_id: _CommitId
    batch_number: _BatchNumber
    previous_commit_id: Annotated[str | None, {"doc": "null for a pipeline's first batch"}] = None
    planned_at: datetime | None = None
    records: Annotated[int, {"doc": "offsets in the batch: an upper bound of its records"}] = 0


@dataclass(frozen=True)
class DataFile:
    """A file of a table; `records` are its rows."""

    path: str
    format: Annotated[str, {"doc": "PARQUET, ORC or AVRO"}] = ""
    records: int = 0
    bytes: int = 0


_DATA_FILE = {"type": "record", "name": "DataFile", "fields": _fields(DataFile)}


@dataclass(frozen=True)
class CommitResponse:
    """What landing wrote into the intermediate table. `files` is the number of all files; the lists may be shorter."""

    type: ClassVar[str] = "commit_response"
    commit_id: _CommitId
    batch_number: _BatchNumber
    connection: _Connection
    table: Annotated[str, {"doc": "the intermediate table"}]
    data_files: Annotated[tuple[DataFile, ...], {"type": {"type": "array", "items": _DATA_FILE}, "default": []}] = ()
    delete_files: Annotated[tuple[DataFile, ...], {"type": {"type": "array", "items": "DataFile"}, "default": []}] = ()
    files: Annotated[int, {"doc": "how many there are; the lists end at 10,000"}] = 0
    counts: Annotated[Mapping[str, int], {"doc": "read, landed, quarantined, filtered", "default": {}}] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class CommitReady:
    """A batch is landed; from now on it never changes."""

    type: ClassVar[str] = "commit_ready"
    commit_id: _CommitId
    batch_number: _BatchNumber
    start_offsets: Annotated[Offsets, {"doc": "first offset of the batch, per topic and partition", "default": {}}]
    next_offsets: Annotated[Offsets, {"doc": "first offset after the batch, per topic and partition", "default": {}}]


@dataclass(frozen=True)
class CommitTable:
    """A destination table has the batch. `reference` is None if the system no longer knows the commit."""

    type: ClassVar[str] = "commit_table"
    commit_id: _CommitId
    batch_number: _BatchNumber
    connection: _Connection
    table: Annotated[str, {"doc": "the destination table"}]
    reference: Annotated[str | None, {"doc": "snapshot id, job id or query id of the commit"}] = None
    vtts: _Vtts = None
    caught_up_through: _CaughtUp = None


@dataclass(frozen=True)
class CommitComplete:
    """All destination tables of the pipeline have the batch."""

    type: ClassVar[str] = "commit_complete"
    commit_id: _CommitId
    batch_number: _BatchNumber
    vtts: _Vtts = None
    caught_up_through: _CaughtUp = None


Payload = CommitRequest | CommitResponse | CommitReady | CommitTable | CommitComplete
_PAYLOADS: dict[str, type[Payload]] = {
    kind.type: kind for kind in (CommitRequest, CommitResponse, CommitReady, CommitTable, CommitComplete)
}


def _schema(payload: type[Payload]) -> Schema:
    parsed: Schema = fastavro.parse_schema(  # type: ignore[assignment]  # a record's schema is a dict
        {
            "type": "record",
            "name": "Event",
            "namespace": "batchmerge.control",
            "fields": [
                {"name": "id", "type": "string", "doc": "the same for every repetition of this event"},
                {"name": "timestamp", "type": _INSTANT, "doc": "when it was sent"},
                {"name": "type", "type": "string"},
                {"name": "group", "type": "string", "doc": "the pipeline"},
                {"name": "run_id", "type": "string", "doc": "who sent it", "default": ""},
                {"name": "payload", "type": {"type": "record", "name": payload.__name__, "fields": _fields(payload)}},
            ],
        }
    )
    return parsed


SCHEMAS: dict[str, Schema] = {kind: _schema(payload) for kind, payload in _PAYLOADS.items()}


@dataclass(frozen=True)
class Event:
    """One control event.

    Attributes:
        id: the same for every repetition of the event, so that readers recognize it.
        timestamp: when it was sent, UTC, in milliseconds.
        group: the pipeline.
        run_id: the Dagster run that sent it.
    """

    id: str
    timestamp: datetime
    group: str
    run_id: str
    payload: Payload

    @property
    def type(self) -> str:
        return self.payload.type


def event_id(pipeline: str, payload: Payload) -> str:
    """The id of an event, from pipeline, type, commit id and table."""
    table = f"{payload.connection}.{payload.table}" if isinstance(payload, CommitResponse | CommitTable) else ""
    return str(uuid.uuid5(_SPACE, "\n".join((pipeline, payload.type, payload.commit_id, table))))


def make_event(pipeline: str, run_id: str, payload: Payload) -> Event:
    """An event with this payload and the present time."""
    now = datetime.now(UTC)
    now = now.replace(microsecond=now.microsecond // 1000 * 1000)
    return Event(event_id(pipeline, payload), now, pipeline, run_id, payload)


def encode(event: Event) -> bytes:
    """The message's value. `deflate` is the only compression that every Avro reader has to support."""
    payload = {f.name: _to_avro(f.name, getattr(event.payload, f.name)) for f in dataclasses.fields(event.payload)}
    record = {f.name: getattr(event, f.name) for f in dataclasses.fields(event)}
    buffer = io.BytesIO()
    fastavro.writer(
        buffer, SCHEMAS[event.type], [{**record, "type": event.type, "payload": payload}], codec="deflate", strict=True
    )
    return buffer.getvalue()


def decode(message: bytes) -> Event | None:
    """The event in a message of this or an older version; None for a type that this version does not have.

    Raises:
        ValueError: not a control event.
    """
    try:
        kind = _read(message)["type"]
        if kind not in SCHEMAS:
            return None
        record = _read(message, SCHEMAS[kind])
    except Exception as problem:  # on other bytes the decoder may raise anything
        raise ValueError(f"not a control event: {type(problem).__name__}") from None
    payload = {name: _from_avro(name, value) for name, value in record["payload"].items()}
    return Event(record["id"], record["timestamp"], record["group"], record["run_id"], _PAYLOADS[kind](**payload))


def _read(message: bytes, wanted: Schema | None = None) -> dict[str, Any]:
    """The only record, by the writer's schema, or resolved to `wanted` (Avro's schema resolution)."""
    record = next(fastavro.reader(io.BytesIO(message), reader_schema=wanted))
    if not isinstance(record, dict):
        raise ValueError("not a record")
    return record


def _to_avro(name: str, value: Any) -> Any:
    if name.endswith("_offsets"):
        return offsets.to_arrays(value)
    if name.endswith("_files"):
        return [dataclasses.asdict(file) for file in value]
    return value


def _from_avro(name: str, value: Any) -> Any:
    if name.endswith("_offsets"):
        return offsets.from_arrays(value)
    if name.endswith("_files"):
        return tuple(DataFile(**file) for file in value)
    return value

"""The five control events as values, and their bytes: a single-record Avro object container file.

Such a file begins with its own schema, so that any Avro tool can read a message without a registry.
"""

from __future__ import annotations

import dataclasses
import io
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

import fastavro

from jobs import offsets
from jobs.events.schema import SCHEMAS, Schema
from jobs.offsets import Offsets

# The namespace of uuid5 for event ids; never change it.
_SPACE = uuid.UUID("7a1b6c1e-2f0a-5d0c-9a55-0d9d3c6f3b10")


@dataclass(frozen=True)
class CommitRequest:
    """A batch is about to be landed. If it is abandoned, nothing follows for it, and another one is requested."""

    type: ClassVar[str] = "commit_request"
    commit_id: str
    batch_number: int
    previous_commit_id: str | None = None
    planned_at: datetime | None = None
    records: int = 0


@dataclass(frozen=True)
class DataFile:
    """A file of a table; `records` are its rows."""

    path: str
    format: str = ""
    records: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class CommitResponse:
    """What landing wrote into the intermediate table. `files` is the number of all files; the lists may be shorter."""

    type: ClassVar[str] = "commit_response"
    commit_id: str
    batch_number: int
    connection: str
    table: str
    data_files: tuple[DataFile, ...] = ()
    delete_files: tuple[DataFile, ...] = ()
    files: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CommitReady:
    """A batch is landed; from now on it never changes."""

    type: ClassVar[str] = "commit_ready"
    commit_id: str
    batch_number: int
    start_offsets: Offsets
    next_offsets: Offsets


@dataclass(frozen=True)
class CommitTable:
    """A destination table has the batch. `reference` is None if the system no longer knows the commit."""

    type: ClassVar[str] = "commit_table"
    commit_id: str
    batch_number: int
    connection: str
    table: str
    reference: str | None = None
    vtts: datetime | None = None
    caught_up_through: datetime | None = None


@dataclass(frozen=True)
class CommitComplete:
    """All destination tables of the pipeline have the batch."""

    type: ClassVar[str] = "commit_complete"
    commit_id: str
    batch_number: int
    vtts: datetime | None = None
    caught_up_through: datetime | None = None


Payload = CommitRequest | CommitResponse | CommitReady | CommitTable | CommitComplete
_PAYLOADS: dict[str, type[Payload]] = {
    kind.type: kind for kind in (CommitRequest, CommitResponse, CommitReady, CommitTable, CommitComplete)
}


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

"""Control events as bytes: any version of a reader takes any version of a message, and a repetition is recognised."""

from __future__ import annotations

import copy
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import fastavro
import pytest

from jobs.events.messages import (
    SCHEMAS,
    CommitComplete,
    CommitReady,
    CommitRequest,
    CommitResponse,
    CommitTable,
    DataFile,
    Payload,
    decode,
    encode,
    event_id,
    make_event,
)
from jobs.offsets import TopicPartition

AT = datetime(2026, 3, 1, 12, 30, 15, 250000, UTC)
ID = "5d0b8c3a-32c4-4a7e-b1a5-0f6f0a9a1c11"
FILE = DataFile("s3://lake/landing/p_tmp/data/00000-0.parquet", "PARQUET", 120, 4096)
OFFSETS = {TopicPartition("orders", 0): 120, TopicPartition("orders", 2): 7, TopicPartition("refunds", 1): 0}

PAYLOADS: list[Payload] = [
    CommitRequest(ID, 7, "previous", AT, 500),
    CommitRequest(ID, 1, None, AT, 500),
    CommitResponse(ID, 7, "lake", "landing.p_tmp", (FILE,), (FILE,), 2, {"read": 120, "quarantined": 1}),
    CommitReady(ID, 7, OFFSETS, {tp: offset + 10 for tp, offset in OFFSETS.items()}),
    CommitTable(ID, 7, "lake", "air.flights", "5551212", AT, AT + timedelta(seconds=1)),
    CommitTable(ID, 7, "warehouse", "air.flights", None, None, None),
    CommitComplete(ID, 7, AT, AT),
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda p: p.type)
def test_what_is_written_is_read(payload: Payload) -> None:
    event = make_event("flights", "run-1", payload)
    assert decode(encode(event)) == event


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda p: p.type)
def test_a_message_carries_its_schema(payload: Payload) -> None:
    reader = fastavro.reader(io.BytesIO(encode(make_event("flights", "run-1", payload))))
    record = next(reader)
    assert isinstance(record, dict)
    assert reader.codec == "deflate"
    assert record["type"] == payload.type
    assert record["payload"]["commit_id"] == ID
    assert list(reader) == []


def test_a_repetition_has_the_same_id_and_nothing_else_has() -> None:
    def table(pipeline: str, commit_id: str, connection: str, name: str) -> str:
        return event_id(pipeline, CommitTable(commit_id, 7, connection, name))

    first = make_event("p", "run-1", CommitTable(ID, 7, "lake", "a.t", "1"))
    again = make_event("p", "run-2", CommitTable(ID, 7, "lake", "a.t", None))
    assert first.id == again.id
    different = {
        first.id,
        table("q", ID, "lake", "a.t"),
        table("p", "other", "lake", "a.t"),
        table("p", ID, "house", "a.t"),
        table("p", ID, "lake", "a.u"),
        event_id("p", CommitComplete(ID, 7)),
        event_id("p", CommitRequest(ID, 7)),
    }
    assert len(different) == 7


def _write(schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(schema), [record])
    return buffer.getvalue()


# What the first version could have been: the seed's fields, and nothing of what came after.
OLDER = {
    "type": "record",
    "name": "Event",
    "namespace": "batchmerge.control",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "type", "type": "string"},
        {"name": "group", "type": "string"},
        {
            "name": "payload",
            "type": {
                "type": "record",
                "name": "CommitTable",
                "fields": [
                    {"name": "commit_id", "type": "string"},
                    {"name": "table", "type": "string"},
                    {"name": "vtts", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
                ],
            },
        },
    ],
}


def test_an_older_message_is_read() -> None:
    record = {"id": "e1", "timestamp": AT, "type": "commit_table", "group": "flights"}
    event = decode(_write(OLDER, {**record, "payload": {"commit_id": ID, "table": "air.flights", "vtts": AT}}))
    assert event
    assert (event.id, event.timestamp, event.run_id) == ("e1", AT, "")
    assert event.payload == CommitTable(ID, 0, "", "air.flights", None, AT, None)


def _newer(kind: str) -> dict[str, Any]:
    schema = copy.deepcopy(SCHEMAS[kind])
    schema.pop("__fastavro_parsed__", None)
    schema.pop("__named_schemas", None)
    schema["fields"].insert(0, {"name": "weather", "type": "string"})
    return schema


def test_a_newer_message_is_read_without_its_new_fields() -> None:
    event = make_event("flights", "run-1", CommitComplete(ID, 7, AT, AT))
    payload = {"commit_id": ID, "batch_number": 7, "vtts": AT, "caught_up_through": AT}
    record = {"id": event.id, "timestamp": event.timestamp, "type": event.type, "group": "flights", "run_id": "run-1"}
    assert decode(_write(_newer("commit_complete"), {**record, "payload": payload, "weather": "fine"})) == event


def test_an_unknown_type_is_passed_over() -> None:
    record = {"id": "e", "timestamp": AT, "type": "commit_undone", "group": "p", "run_id": "", "weather": "fine"}
    payload = {"commit_id": ID, "batch_number": 7, "vtts": AT, "caught_up_through": AT}
    assert decode(_write(_newer("commit_complete"), {**record, "payload": payload})) is None


@pytest.mark.parametrize("message", [b"", b"{}", b"Obj\x01", b"Obj\x01\xff\xff\xff", b"\x00\x00\x00\x00\x05hello"])
def test_other_bytes_are_no_event(message: bytes) -> None:
    with pytest.raises(ValueError, match="not a control event"):
        decode(message)


def test_a_damaged_event_is_no_event() -> None:
    message = encode(make_event("p", "r", CommitComplete(ID, 7)))
    with pytest.raises(ValueError, match="not a control event"):
        decode(message[: len(message) // 2])


def test_thousands_of_partitions_and_files_stay_small() -> None:
    partitions = [TopicPartition("orders", n) for n in range(5000)]
    ready = CommitReady(
        ID,
        7,
        {tp: 10**9 + 7919 * tp.partition for tp in partitions},
        {tp: 10**9 + 7919 * tp.partition + 13 for tp in partitions},
    )
    event = make_event("p", "r", ready)
    message = encode(event)
    assert len(message) < 64 * 1024
    assert decode(message) == event
    name = "s3://lake/landing/p_tmp/data/landed_hour=2026-03-01-12/{:05d}-{}-6f0b7f5e-0a9a-4b4e-8a94-1f6f0c7d2b11-0-00001.parquet"
    files = tuple(DataFile(name.format(n, n + 31), "PARQUET", 200 + n % 17, 41000 + 37 * n) for n in range(10_000))
    response = CommitResponse(ID, 7, "lake", "landing.p_tmp", files, (), 10_000, {})
    assert len(encode(make_event("p", "r", response))) < 512 * 1024

"""How fast each format is decoded: rows a second of one core, the same rows in each, beside plain JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from jobs.decode.base import Decoder
from jobs.decode.decoders import decoder_for
from jobs.decode.registered import RegisteredSchema
from jobs.schema.protobuf import Messages, compiled, message_class
from tests.kit.arrow import row_type
from tests.kit.avro import encoded, record, text

ROWS, BATCH = 100_000, 10_000
COLUMNS = {"id": "long", "name": "string", "amount": "double", "at": "timestamp", "price": "decimal(10,2)"}
KIND = row_type(COLUMNS)
AVRO = record(
    ("id", "long"),
    ("name", ["null", "string"]),
    ("amount", "double"),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
)
PROTO = """syntax = "proto3"; package b; message Row {
int64 id = 1; optional string name = 2; double amount = 3; google.protobuf.Timestamp at = 4; string price = 5; }
"""
CONNECT = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "name", "type": "string", "optional": True},
        {"field": "amount", "type": "double"},
        {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
        {"field": "price", "type": "string"},
    ],
}


def main() -> None:
    print(f"{'format':<24}{'bytes':>8}{'rows/s':>12}{'of JSON':>9}")
    base = 0.0
    for name, decoder, make in _cases():
        records = [make(n) for n in range(BATCH)]
        rate = _rate(decoder, pa.array(records, pa.binary()))
        base = base or rate
        print(f"{name:<24}{len(records[0]):>8}{rate:>12,.0f}{rate / base:>8.0%}")


def _rate(decoder: Decoder, raw: pa.Array) -> float:
    assert not decoder.decode(raw).errors
    start = time.perf_counter()
    for _ in range(ROWS // BATCH):
        decoder.decode(raw)
    return ROWS / (time.perf_counter() - start)


def _cases() -> list[tuple[str, Decoder, Callable[[int], bytes]]]:
    proto = compiled((PROTO.replace("message", 'import "google/protobuf/timestamp.proto"; message', 1),), ("",))
    row = message_class(Messages(proto).named("b.Row"))
    schemas = {
        1: RegisteredSchema(1, "AVRO", (text(AVRO),)),
        2: RegisteredSchema(2, "PROTOBUF", ("",), ("",), proto),
        3: RegisteredSchema(3, "JSON", ("{}",)),
    }

    def avro(n: int, schema_id: int | None = None) -> bytes:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        value = {"id": n, "name": f"name {n}", "amount": n / 4, "at": at, "price": Decimal(n).scaleb(-2)}
        return encoded(AVRO, value, schema_id)

    def protobuf(n: int) -> bytes:
        content: bytes = row(
            id=n, name=f"name {n}", amount=n / 4, at=datetime(2026, 1, 1), price=f"{n / 100:.2f}"
        ).SerializeToString()
        return content

    def plain(n: int) -> dict[str, Any]:
        return {"id": n, "name": f"name {n}", "amount": n / 4, "at": 1_767_225_600_000, "price": f"{n / 100:.2f}"}

    return [
        ("json", decoder_for("json", KIND), lambda n: json.dumps(plain(n)).encode()),
        (
            "json, registry",
            decoder_for("json", KIND, registered=schemas),
            lambda n: b"\x00\x00\x00\x00\x03" + json.dumps(plain(n)).encode(),
        ),
        (
            "json, schema+payload",
            decoder_for("connect_json", KIND),
            lambda n: json.dumps({"schema": CONNECT, "payload": plain(n)}, separators=(",", ":")).encode(),
        ),
        ("avro, schema file", decoder_for("avro", KIND, text(AVRO).encode()), avro),
        ("avro, registry", decoder_for("avro", KIND, registered=schemas), lambda n: avro(n, 1)),
        ("protobuf, descriptors", decoder_for("protobuf", KIND, proto, "b.Row"), protobuf),
        (
            "protobuf, registry",
            decoder_for("protobuf", KIND, registered=schemas),
            lambda n: b"\x00\x00\x00\x00\x02\x00" + protobuf(n),
        ),
    ]


if __name__ == "__main__":
    main()

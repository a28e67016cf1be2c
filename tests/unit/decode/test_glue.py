"""Records as AWS Glue's serializers write them, in every format, compressed or not."""

from __future__ import annotations

import json
import zlib
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from jobs.decode import glue
from jobs.decode.avro import RegisteredAvro
from jobs.decode.decoders import Schemas, decoder_for
from jobs.decode.glue import uncompressed
from jobs.decode.of_schema import SchemaDecoder
from jobs.decode.parts import SMALL
from jobs.decode.protobuf import RegisteredProtobuf
from jobs.decode.registered import RegisteredSchema
from jobs.landing.registry_schemas import registered
from jobs.schema.protobuf import Messages, compiled, message_class
from resources.stored_schema import StoredSchema
from tests.kit.arrow import copied, raw_values, row_type
from tests.kit.avro import encoded, record
from tests.kit.glue_registry import framed
from tests.kit.in_step import assert_same

VERSION, OTHER = "c8a6f9f0-9c6d-4f0e-8d5f-0d6f0a3b2c1d", "c8a6f9f0-9c6d-4f0e-8d5f-0d6f0a3b2c1e"
AVRO = record(("id", "long"), ("name", "string"))
# AWS numbers the messages by their full names: z.A is 0, z.B 1, z.B.A 2, z.B.C 3, z.B.C.D 4.
PROTO = """syntax = "proto3"; package z;
message B { message C { message D { int64 id = 1; } int64 id = 1; } message A { string name = 1; } int64 id = 1; }
message A { string name = 2; int64 id = 1; }"""
COLUMNS = {"id": "long", "name": "string"}


def schema(kind: str, text: str) -> RegisteredSchema:
    return registered(StoredSchema(VERSION, kind, (text,), ("",)))


def message(of: str, **fields: Any) -> bytes:
    made: bytes = message_class(Messages(compiled((PROTO,), ("",))).named(of))(**fields).SerializeToString()
    return made


def contents(format: str) -> list[bytes]:
    match format:
        case "avro":
            return [encoded(AVRO, {"id": 1, "name": "a"}), encoded(AVRO, {"id": 2, "name": "b" * 99})]
        case "json":
            return [b'{"id":1,"name":"a"}', json.dumps({"id": 2, "name": "b" * 99}).encode()]
    return [b"\0" + message("z.A", id=1, name="a"), b"\0" + message("z.A", id=2, name="b" * 99)]


@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
@pytest.mark.parametrize("times", [1, SMALL + 1])
def test_every_format_compressed_or_not(format: str, times: int) -> None:
    texts = {"avro": json.dumps(AVRO), "json": "{}", "protobuf": PROTO}
    schemas: Schemas = {VERSION: schema(format.upper(), texts[format])}
    decoder = copied(decoder_for(format, row_type(COLUMNS), registered=schemas))
    records = [framed(VERSION, one, compressed) for one in contents(format) for compressed in (False, True)]
    raw = uncompressed(raw_values(*records * times, None, framed(OTHER, contents(format)[0])))
    decoded = decoder.decode(raw)
    one, two = {"id": 1, "name": "a"}, {"id": 2, "name": "b" * 99}
    assert decoded.values.to_pylist() == [one, one, two, two] * times + [None, None]
    assert [error.message for error in decoded.errors.values()] == [f"schema GUID {OTHER} is not in the registry"]


@pytest.mark.parametrize(
    ("number", "name"), [(0, "z.A"), (1, "z.B"), (2, "z.B.A"), (3, "z.B.C"), (4, "z.B.C.D"), (5, None)]
)
def test_messages_by_their_numbers(number: int, name: str | None) -> None:
    decoder = RegisteredProtobuf(row_type(COLUMNS), {VERSION: schema("PROTOBUF", PROTO)})
    field: dict[str, Any] = {"name": "a"} if name == "z.B.A" else {"id": 7}
    decoded = decoder.decode(raw_values(framed(VERSION, bytes([number]) + message(name or "z.A", **field))))
    if name is None:
        assert decoded.errors[0].message == f"schema GUID {VERSION} has no message at the indexes of the record"
    else:
        assert {k: v for k, v in decoded.values.to_pylist()[0].items() if v} == field


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_many_at_once_are_read_as_one_by_one(format: str) -> None:
    schemas: Schemas = {VERSION: schema(format.upper(), PROTO if format == "protobuf" else json.dumps(AVRO))}
    kind = row_type(COLUMNS)
    decoder: SchemaDecoder = (
        RegisteredProtobuf(kind, schemas) if format == "protobuf" else RegisteredAvro(kind, schemas, None)
    )
    good = [framed(VERSION, one) for one in contents(format)]
    bad = [good[0][:17], good[0][:18], framed(OTHER, b"x"), b"\3\5" + good[0][2:], b"\3\1" + good[0][2:], b"\3", None]
    assert assert_same(copied(decoder), [*good, *bad], times=SMALL + 1) == 3


def test_what_cannot_be_uncompressed_stays_and_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glue, "_MOST_BYTES", 50)
    good, head = framed(VERSION, b"x" * 40, True), b"\3\5" + UUID(VERSION).bytes
    broken = [
        head + b"no zlib",
        head + zlib.compress(b"y" * 40)[:-3],
        head + zlib.compress(b"z" * 60),
        head + zlib.compress(b"y") + b"more",
        head,
        b"\3\5",
    ]
    raw = raw_values(good, *broken, None, b"\3\0plain")
    for kind in (pa.binary(), pa.large_binary()):
        found = uncompressed(raw.cast(kind))
        assert found.type == kind
        assert found.to_pylist() == [framed(VERSION, b"x" * 40), *broken, None, b"\3\0plain"]
    errors = RegisteredAvro(row_type(COLUMNS), {}, None).decode(raw).errors
    assert [errors[row].kind for row in range(1, 7)] == ["undecodable"] * 6
    assert errors[1].message == "the record cannot be uncompressed"


def test_records_of_other_forms_cost_nothing() -> None:
    raw = raw_values(b"\0\0\0\0\1", b"", None, b"\3")
    assert uncompressed(raw) is raw

"""Text and bytes, and the choice of a decoder by name."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from jobs.decode.base import DecodeError, Decoder, Refused, decode_each
from jobs.decode.decoders import decoder_for
from jobs.decode.registered import RegisteredSchema
from resources.errors import ConfigurationError
from resources.stored_schema import SchemaId
from tests.kit.arrow import copied, raw_values, row_type

RAW = raw_values(b"a", b"\xff", None, b"", "é".encode())


@pytest.mark.parametrize("nullable", [True, False])
def test_text(nullable: bool) -> None:
    column = pa.struct([pa.field("line", pa.string(), nullable=nullable)])
    error = {1: DecodeError("undecodable", "the record: expected string, no UTF-8 at byte 0")}
    scalar, struct = (copied(decoder_for("string", kind)).decode(RAW) for kind in (pa.string(), column))
    assert scalar.values.to_pylist() == ["a", None, None, "", "é"]
    assert struct.values.to_pylist() == [{"line": "a"}, None, None, {"line": ""}, {"line": "é"}]
    assert struct.values.type == column
    assert scalar.errors == struct.errors == error


def test_json_keys_of_one_value() -> None:
    """A key that is no object is the only column, beside keys that are objects."""
    kind, raw = (
        row_type({"id": "long not null"}),
        raw_values(b"42", b'{"id": 7}', b'"42"', b"null", None, b"[1]", b'{"x": 1}'),
    )
    for ignore_case in (False, True):
        decoded = copied(decoder_for("json", kind, ignore_case=ignore_case, one_value=True)).decode(raw)
        assert decoded.values.to_pylist() == [{"id": 42}, {"id": 7}, None, None, None, None, None]
        assert {row: error.message for row, error in decoded.errors.items()} == {
            2: "column id: expected long, found a string",
            5: "column id: expected long, found an array",
            6: "column id: expected long not null, found nothing",
        }
    two = row_type({"a": "int", "b": "int"})
    assert decoder_for("json", two, one_value=True).decode(raw_values(b"1")).errors.keys() == {0}
    assert decoder_for("json", kind).decode(raw_values(b"42")).errors.keys() == {0}, "values are objects"


def test_json_keys_of_one_value_beside_a_registry() -> None:
    registered: dict[SchemaId, RegisteredSchema] = {3: RegisteredSchema(3, "JSON", ('{"type": "integer"}',))}
    decoder = copied(decoder_for("json", row_type({"id": "long"}), registered=registered, one_value=True))
    assert decoder.decode(raw_values(b"\0\0\0\0\x0342")).values.to_pylist() == [{"id": 42}]


def test_text_without_errors() -> None:
    decoded = decoder_for("string", pa.string()).decode(pa.array([b"a", None], pa.large_binary()))
    assert decoded.values == pa.array(["a", None], pa.string())
    assert decoded.errors == {}


def test_bytes() -> None:
    column = pa.struct([("payload", pa.binary())])
    decoded = copied(decoder_for("bytes", column)).decode(RAW)
    assert decoded.values.to_pylist() == [None if v is None else {"payload": v} for v in RAW.to_pylist()]
    assert decoded.errors == {}
    assert decoder_for("bytes", pa.binary()).decode(RAW[1:3]).values.to_pylist() == [b"\xff", None]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("long", b"42", 42),
        ("int", b"-007", -7),
        ("double", b"2.5e3", 2500.0),
        ("decimal(4,1)", b"2.50", Decimal("2.5")),
        ("boolean", b"True", True),
        ("date", b"2026-05-01", date(2026, 5, 1)),
        ("timestamp", b"2026-05-01T12:00:00+02:00", datetime(2026, 5, 1, 10, tzinfo=UTC)),
        ("text", b"{}", "{}"),
        ("long", b"", "column id: expected long, found a string"),
        ("long", b" 42", "column id: expected long, found a string"),
        ("int", b"3000000000", "column id: expected int, found a number that does not fit"),
        ("boolean", b"yes", "column id: expected boolean, found a string"),
        ("long", b"\xff", "the record: expected string, no UTF-8 at byte 0"),
    ],
)
def test_text_of_another_type(kind: str, text: bytes, expected: object) -> None:
    decoder = copied(decoder_for("string", row_type({"id": f"{kind} not null"})))
    assert of_one(decoder, text) == expected


@pytest.mark.parametrize(
    ("kind", "record", "expected"),
    [
        ("long", struct.pack(">q", -(2**63)), -(2**63)),
        ("long", struct.pack(">i", -7), -7),
        ("int", struct.pack(">i", 2**31 - 1), 2**31 - 1),
        ("int", struct.pack(">h", -1), -1),
        ("float", struct.pack(">f", 0.5), 0.5),
        ("double", struct.pack(">d", 0.1), 0.1),
        ("double", struct.pack(">f", 0.5), 0.5),
        ("boolean", b"\x01", True),
        ("boolean", b"\x00", False),
        ("boolean", b"\x02", "column id: expected boolean, found a byte that is neither 0 nor 1"),
        ("int", struct.pack(">q", 7), "column id: expected int (2 or 4 bytes, big-endian), found 8 bytes"),
        ("long", b"", "column id: expected long (2 or 4 or 8 bytes, big-endian), found 0 bytes"),
    ],
)
def test_bytes_of_kafkas_serializers(kind: str, record: bytes, expected: object) -> None:
    """Its LongSerializer and the like, which Connect's NumberConverters use too."""
    decoder = copied(decoder_for("bytes", row_type({"id": f"{kind} not null"})))
    assert of_one(decoder, record) == expected


def of_one(decoder: Decoder, record: bytes) -> object:
    """The value of a record, or its error; a good record and a tombstone beside it make no difference."""
    alone, beside = (decoder.decode(raw_values(*records)) for records in ([record], [record, None, record]))
    assert beside.values.to_pylist() == [*alone.values.to_pylist(), None, *alone.values.to_pylist()]
    return alone.errors[0].message if alone.errors else alone.values[0].as_py()["id"]


@pytest.mark.parametrize("format", ["string", "bytes", "json"])
@pytest.mark.parametrize("raw", [raw_values(), raw_values(None, None)])
def test_nothing_and_tombstones_only(format: str, raw: pa.Array) -> None:
    kind = {"string": pa.string(), "bytes": pa.binary(), "json": pa.struct([("a", pa.int32())])}[format]
    decoded = decoder_for(format, kind).decode(raw)
    assert decoded.values.to_pylist() == raw.to_pylist()
    assert decoded.values.type == kind
    assert decoded.errors == {}


@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
@pytest.mark.parametrize("raw", [raw_values(), raw_values(None, None)])
def test_nothing_and_tombstones_only_beside_a_registry(format: str, raw: pa.Array) -> None:
    kind = pa.struct([("a", pa.int32())])
    decoded = decoder_for(format, kind, registered={}).decode(raw)
    assert (decoded.values.to_pylist(), decoded.values.type, decoded.errors) == (raw.to_pylist(), kind, {})


@pytest.mark.parametrize(
    ("format", "kind", "what"),
    [
        ("string", pa.list_(pa.int64()), "cannot be array<long>"),
        ("string", pa.struct([("a", pa.string()), ("b", pa.string())]), "cannot be struct<a: string, b: string>"),
        ("bytes", pa.string(), "cannot be string"),
        ("bytes", pa.timestamp("us"), "cannot be timestamp_ntz"),
        ("bytes", row_type({"id": "uuid"}), "cannot be uuid"),
        ("json", pa.map_(pa.int32(), pa.int32()), "keys of a JSON object are strings"),
        ("json", pa.struct([("a", pa.uint8())]), "uint8"),
    ],
)
def test_what_cannot_be(format: str, kind: pa.DataType, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what) as refused:
        decoder_for(format, kind)
    assert refused.value.remedy


def test_error_that_a_decoder_keeps_does_not_keep_the_records_it_is_raised_for() -> None:
    kept = Refused("schema", "schema id 9 is not in the registry")

    def refuse(_: bytes) -> None:
        raise kept

    assert set(decode_each(pa.array([b"a", b"b"]), refuse)[1]) == {0, 1}
    assert kept.__traceback__ is None

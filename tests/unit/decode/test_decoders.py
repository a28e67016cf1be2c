"""Text and bytes, and the choice of a decoder by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.decode.base import DecodeError, Refused, decode_each
from jobs.decode.decoders import decoder_for
from resources.errors import ConfigurationError
from tests.kit.arrow import copied, raw_values

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
        ("string", pa.int64(), "cannot be long"),
        ("string", pa.struct([("a", pa.string()), ("b", pa.string())]), "cannot be struct<a: string, b: string>"),
        ("bytes", pa.string(), "cannot be string"),
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

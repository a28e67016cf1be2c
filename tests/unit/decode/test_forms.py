"""`uuid`, `time` and `fixed(n)`: one form for each value, in every format, one by one and whole columns at a time."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from jobs.decode.base import Decoded, Refused
from jobs.decode.convert import Unrepresentable, converter
from jobs.decode.decoders import decoder_for
from jobs.decode.formed import formed
from jobs.decode.forms import all_in_form, in_form
from jobs.decode.json_dialect import JsonDialect
from jobs.schema.wire import Wire
from tests.kit.arrow import row_type

ID = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
MANY = 100  # more than are decoded one by one
CONNECT_TIME, MICRO_TIME = "org.apache.kafka.connect.data.Time", "io.debezium.time.MicroTime"
ROW = row_type({"id": "uuid", "at": "time", "code": "fixed(4)", "ids": "array<uuid>", "n": "int"})
GOOD = {"id": ID, "at": "08:05:00.5", "code": b64encode(b"abcd").decode(), "ids": [ID.upper(), None], "n": 1}
READ = {"id": ID, "at": "08:05:00.500000", "code": b"abcd", "ids": [ID, None], "n": 1}


def kinds(decoded: Decoded) -> dict[int, str]:
    return {row: error.kind for row, error in decoded.errors.items()}


@pytest.mark.parametrize(
    ("form", "given", "read"),
    [
        ("uuid", ID, ID),
        ("uuid", ID.upper(), ID),
        ("uuid", ID.replace("-", ""), "type"),
        ("uuid", f"{{{ID}}}", "type"),
        ("uuid", f"{ID}\n", "type"),
        ("uuid", "", "type"),
        ("time", "00:00", "00:00:00"),
        ("time", "23:59:59.999999", "23:59:59.999999"),
        ("time", "23:59:59.9999999", "23:59:59.999999"),
        ("time", "08:05:00.000", "08:05:00"),
        ("time", "08:05:00.12", "08:05:00.120000"),
        ("time", "24:00:00", "range"),
        ("time", "-01:00:00", "range"),
        ("time", "838:59:59", "range"),
        ("time", "8:05", "type"),
        ("time", "08:05:00Z", "type"),
        ("time", "08:05:00+02:00", "type"),
        ("time", "08:60:00", "type"),
        ("time", "08", "type"),
        ("time", " 08:05:00", "type"),
        ("time", "٠٨:٠٥:٠٠", "type"),
        ("fixed(4)", b"abcd", b"abcd"),
        ("fixed(4)", b"abc", "range"),
        ("fixed(4)", b"", "range"),
    ],
)
def test_a_value_has_one_form(form: str, given: Any, read: Any) -> None:
    convert, values = in_form(form, "column c"), pa.array([None, given, None])
    if isinstance(read, str) and read in ("type", "range"):
        with pytest.raises(Refused) as refused:
            convert(given)
        assert refused.value.error.kind == read
        assert refused.value.error.message.startswith("column c: expected ")
        with pytest.raises(pa.ArrowInvalid):
            all_in_form(values, form)
        return
    assert convert(given) == convert(read) == read, "the form itself stays"
    assert all_in_form(values, form).to_pylist() == [None, read, None]


@pytest.mark.parametrize("count", [1, MANY])
def test_json(count: int) -> None:
    records = [json.dumps({**GOOD, "n": n}).encode() for n in range(count)]
    bad = [
        {**GOOD, "id": "x"},
        {**GOOD, "id": 1},
        {**GOOD, "at": True},
        {**GOOD, "at": -1},
        {**GOOD, "code": "YWI="},
        {**GOOD, "ids": ["x"]},
        {**GOOD, "at": 0.5},
    ]
    records += [json.dumps(one).encode() for one in bad]
    decoded = decoder_for("json", ROW).decode(pa.array(records, pa.binary()))
    assert decoded.values.to_pylist()[:count] == [{**READ, "n": n} for n in range(count)]
    assert kinds(decoded) == dict(enumerate(["type", "type", "type", "range", "range", "type", "type"], count))
    assert decoded.errors[count].message == "column id: expected uuid, found a string that is none"


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(("unit", "number"), [("ms", 29_100_500), ("us", 29_100_500_000), ("s", 29_100)])
def test_json_numbers_are_times_of_the_unit(unit: str, number: int, count: int) -> None:
    row = JsonDialect(timestamps={"at": unit}, best_fit=True).of_row(row_type({"at": "time", "id": "uuid"}))
    records = pa.array([json.dumps({"at": number, "id": ID}).encode()] * count, pa.binary())
    decoded = decoder_for("json", row).decode(records)
    assert decoded.errors == {}
    expected = "08:05:00" if unit == "s" else "08:05:00.500000"
    assert decoded.values.to_pylist() == [{"at": expected, "id": ID}] * count


def avro(schema: dict[str, Any], rows: list[dict[str, Any]]) -> pa.Array:
    parsed, found = fastavro.parse_schema(schema), []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        found.append(stream.getvalue())
    return pa.array(found, pa.binary())


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "text", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {"name": "own", "type": {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}},
        {"name": "bare", "type": {"type": "fixed", "name": "b", "size": 16}},
        {"name": "plain", "type": "string"},
        {"name": "code", "type": {"type": "fixed", "name": "f", "size": 4}},
        {"name": "ms", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "count", "type": "int"},
        {"name": "said", "type": "string"},
    ],
}
AVRO_COLUMNS = {
    **dict.fromkeys(("text", "own", "bare", "plain"), "uuid"),
    "code": "fixed(4)",
    **dict.fromkeys(("ms", "us", "count", "said"), "time"),
}


@pytest.mark.parametrize("count", [1, MANY])
def test_avro(count: int) -> None:
    raw = UUID(ID).bytes
    row = {
        "text": ID.upper(), "own": raw, "bare": raw, "plain": ID, "code": b"abcd",
        "ms": 29_100_500, "us": 29_100_500_000, "count": 29_100_500, "said": "08:05:00.5",
    }  # fmt: skip
    late = {**row, "us": 86_400_000_000}
    reader = decoder_for("avro", row_type(AVRO_COLUMNS), json.dumps(AVRO).encode())
    plain = {**AVRO, "fields": [{**f, "type": _bare(f["type"])} for f in AVRO["fields"]]}
    decoded = reader.decode(avro(plain, [row] * count + [late]))
    expected = {
        **dict.fromkeys(("text", "own", "bare", "plain"), ID),
        "code": b"abcd",
        **dict.fromkeys(("ms", "us", "count", "said"), "08:05:00.500000"),
    }
    assert decoded.values.to_pylist()[:count] == [expected] * count
    assert kinds(decoded) == {count: "range"}


def _bare(kind: Any) -> Any:
    """Without logical types, so that values are written as they are given."""
    if isinstance(kind, list):
        return [_bare(one) for one in kind]
    return {k: v for k, v in kind.items() if k != "logicalType"} if isinstance(kind, dict) else kind


def connect(fields: list[dict[str, Any]], row: dict[str, Any]) -> bytes:
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": row}).encode()


@pytest.mark.parametrize("count", [1, MANY])
def test_connect_json(count: int) -> None:
    fields = [
        {"field": "id", "type": "string", "name": "io.debezium.data.Uuid"},
        {"field": "ms", "type": "int32", "name": CONNECT_TIME},
        {"field": "us", "type": "int64", "name": MICRO_TIME},
        {"field": "iso", "type": "string", "name": "io.debezium.time.IsoTime"},
        {"field": "zoned", "type": "string", "name": "io.debezium.time.ZonedTime"},
        {"field": "code", "type": "bytes"},
    ]
    row = {
        "id": ID, "ms": 29_100_500, "us": 29_100_500_000, "iso": "08:05:00.5Z", "zoned": "08:05:00.5",
        "code": b64encode(b"abcd").decode(),
    }  # fmt: skip
    columns = {"id": "uuid", **dict.fromkeys(("ms", "us", "iso", "zoned"), "time"), "code": "fixed(4)"}
    zone = {**row, "zoned": "08:05:00Z"}
    records = [connect(fields, row)] * count + [connect(fields, zone), connect(fields, {**row, "us": -1})]
    decoded = decoder_for("connect_json", row_type(columns)).decode(pa.array(records, pa.binary()))
    expected = {"id": ID, **dict.fromkeys(("ms", "us", "iso", "zoned"), "08:05:00.500000"), "code": b"abcd"}
    assert decoded.values.to_pylist()[:count] == [expected] * count
    assert kinds(decoded) == {count: "type", count + 1: "range"}


@pytest.mark.parametrize(
    ("wire", "declared"),
    [
        (Wire("int"), "uuid"),
        (Wire("bytes", "decimal", 10, 2), "uuid"),
        (Wire("long", "timestamp-us"), "time"),
        (Wire("double"), "time"),
        (Wire("string"), "fixed(2)"),
        (Wire("union", fields=(("string", Wire("string")), ("int", Wire("int")))), "uuid"),
    ],
)
def test_a_schema_that_cannot_have_the_form_is_refused(wire: Wire, declared: str) -> None:
    with pytest.raises(Unrepresentable, match=rf"column c: expected {declared[:4]}"):
        converter(Wire("record", fields=(("c", wire),)), row_type({"c": declared}))


@pytest.mark.parametrize(
    ("format", "declared", "given", "read"),
    [
        ("string", "uuid", ID.upper(), ID),
        ("string", "time", "08:05", "08:05:00"),
        ("bytes", "fixed(4)", "abcd", b"abcd"),
    ],
)
def test_whole_records(format: str, declared: str, given: str, read: Any) -> None:
    raw = pa.array([given.encode(), b"other", None], pa.binary())
    decoded = decoder_for(format, row_type({"c": declared})).decode(raw)
    assert decoded.values.to_pylist() == [{"c": read}, None, None]
    assert kinds(decoded) == {1: "type"}


def test_what_a_transform_makes() -> None:
    """Spark's result has no marks, and is sliced and null in places."""
    kind = row_type({"id": "uuid", "ids": "array<uuid>", "by": "map<string,time>", "in": "struct<code: fixed(2)>"})
    plain = pa.struct([pa.field(f.name, pa.array([], f.type).type) for f in kind])
    good = {"id": ID.upper(), "ids": [None, ID], "by": [("a", "08:05")], "in": {"code": b"ab"}}
    rows = [good, {**good, "id": "x"}, None, {**good, "in": {"code": b"a"}}, {**good, "in": None, "ids": None}, good]
    values, errors = formed(pa.array(rows, plain)[1:], kind)
    read = {"id": ID, "ids": [None, ID], "by": [("a", "08:05:00")], "in": {"code": b"ab"}}
    assert values.to_pylist() == [None, None, None, {**read, "in": None, "ids": None}, read]
    assert {row: error.message for row, error in errors.items()} == {
        0: "column id: expected uuid, found a value that is none",
        2: "column in.code: expected fixed(2), found a value that is none",
    }

"""Kafka Connect's JSON with a schema in each record."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.decode.base import DecodeError
from jobs.decode.connect_json import ConnectJson
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.unknown import Watch
from jobs.schema.connect import connect_wire
from jobs.schema.types import as_text, parse_columns, parse_type, type_name
from jobs.schema.wire import natural_type
from tests.kit.arrow import copied, raw_values, row_type
from tests.kit.in_step import assert_same

_CONNECT, _TIME, _DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."


def field(kind: str, name: str = "", optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, **({"name": name} if name else {}), **more}


def struct(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "optional": False, "fields": [{**f, "field": n} for n, f in fields.items()]}


def envelope(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def compact(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


TYPES: list[tuple[dict[str, Any], str, Any, Any]] = [
    (field("int8"), "int", -128, -128),
    (field("int64"), "long", 2**63 - 1, 2**63 - 1),
    (field("float"), "float", 1.5, 1.5),
    (field("double"), "double", 1, 1.0),
    (field("boolean"), "boolean", False, False),
    (field("string"), "string", "é\x00", "é\x00"),
    (field("bytes"), "binary", "/w==", b"\xff"),
    (field("bytes", f"{_CONNECT}Decimal", parameters={"scale": "2", "connect.decimal.precision": "5"}),
     "decimal(5,2)", "/w==", Decimal("-0.01")),
    (field("int32", f"{_CONNECT}Date"), "date", -1, date(1969, 12, 31)),
    (field("int32", f"{_CONNECT}Time"), "string", 1, "00:00:00.001000"),
    (field("int64", f"{_CONNECT}Timestamp"), "timestamp", 1, datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
    (field("int32", f"{_TIME}Date"), "date", 18262, date(2020, 1, 1)),
    (field("int64", f"{_TIME}MicroTime"), "string", 3_600_000_001, "01:00:00.000001"),
    (field("int64", f"{_TIME}NanoTime"), "string", 1_999, "00:00:00.000001"),
    (field("int64", f"{_TIME}Timestamp"), "timestamp_ntz", 1, datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (field("int64", f"{_TIME}MicroTimestamp"), "timestamp_ntz", 1, datetime(1970, 1, 1, 0, 0, 0, 1)),
    (field("int64", f"{_TIME}NanoTimestamp"), "timestamp_ntz", 1_000, datetime(1970, 1, 1, 0, 0, 0, 1)),
    (field("string", f"{_TIME}ZonedTimestamp"), "timestamp", "2020-01-01T00:00:00.1Z",
     datetime(2020, 1, 1, 0, 0, 0, 100000, UTC)),
    (field("string", f"{_TIME}IsoTimestamp"), "timestamp_ntz", "2018-06-20T15:13:16.945104Z",
     datetime(2018, 6, 20, 15, 13, 16, 945104)),
    (field("string", f"{_TIME}IsoDate"), "string", "2005-05-12Z", "2005-05-12Z"),
    (field("int32", f"{_TIME}Time"), "string", -500, "-00:00:00.500000"),
    (field("int64", f"{_TIME}MicroTime"), "string", 100 * 3_600_000_000, "100:00:00"),
    (field("int64", f"{_TIME}MicroTime"), "string", -3_600_000_000, "-01:00:00"),
    (field("string", f"{_TIME}ZonedTime"), "string", "10:00:00Z", "10:00:00Z"),
    (field("string", f"{_DATA}Uuid"), "string", "u", "u"),
    (field("string", f"{_DATA}Enum"), "string", "e", "e"),
    (field("string", f"{_DATA}Json"), "string", "{}", "{}"),
    (struct(scale=field("int32"), value=field("bytes")) | {"optional": True, "name": f"{_DATA}VariableScaleDecimal"},
     "decimal(38,9)", {"scale": 3, "value": "BNI="}, Decimal("1.234")),
    (struct(x=field("double"), wkb=field("bytes"), srid=field("int32"))
     | {"optional": True, "name": "io.debezium.data.geometry.Point"},
     "struct<x: double, wkb: binary, srid: int>", {"x": 1.5, "wkb": "AQ==", "srid": None},
     {"x": 1.5, "wkb": b"\x01", "srid": None}),
    (field("array", items=field("int32", optional=False)), "array<int not null>", [1], [1]),
    (field("map", keys=field("string"), values=field("int64")), "map<string,long>", {"a": 1}, [("a", 1)]),
    (field("map", keys=field("int32"), values=field("string")), "map<int,string>", [[1, "a"]], [(1, "a")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "column", "text", "wanted"),
    [
        ("IsoDate", "date", "2005-05-12Z", date(2005, 5, 12)),
        ("IsoDate", "date", "2005-05-12", date(2005, 5, 12)),
        ("IsoTimestamp", "timestamp", "2005-05-12T10:00:00Z", datetime(2005, 5, 12, 10, tzinfo=UTC)),
        ("ZonedTimestamp", "timestamp_ntz", "2005-05-12T10:00:00Z", None),
        ("IsoTimestamp", "timestamp_ntz", "2005-05-12T10:00:00+01:00", None),
    ],
)
def test_iso_texts_of_debezium_end_with_z(name: str, column: str, text: str, wanted: Any) -> None:
    record = compact(struct(c=field("string", f"{_TIME}{name}")), {"c": text})
    decoder = ConnectJson(pa.struct([("c", parse_type(column)[0])]))
    decoded = decoder.decode(pa.array([record]))
    assert decoded.values.to_pylist() == [wanted and {"c": wanted}]
    assert_same(decoder, [record])


@pytest.mark.parametrize("write", [envelope, compact])
@pytest.mark.parametrize(("schema", "column", "payload", "wanted"), TYPES)
def test_every_type(write: Any, schema: dict[str, Any], column: str, payload: Any, wanted: Any) -> None:
    whole = struct(c=schema)
    wire = connect_wire(whole).field("c")
    assert wire is not None
    assert type_name(natural_type(wire)) == column
    decoder = copied(ConnectJson(pa.struct([("c", parse_type(column)[0])])))
    records = pa.array([write(whole, {"c": payload}), write(whole, {"c": None}), write(whole, {"c": payload})])
    decoded = decoder.decode(records)
    assert decoded.errors == {}
    assert decoded.values.to_pylist() == [{"c": wanted}, {"c": None}, {"c": wanted}]
    assert_same(decoder, records.to_pylist())


@pytest.mark.parametrize(("text", "wanted"), [("0.1", 0.10000000149011612), ("16777217", 16777216.0), ("1e39", None)])
def test_a_float_is_the_same_in_a_column_that_has_become_wider(text: str, wanted: float | None) -> None:
    """Whether it was landed before or after, and so however the log was cut."""
    schema = json.dumps(struct(c=field("float")))
    decoder = ConnectJson(pa.struct([("c", pa.float64())]))
    record = f'{{"schema":{schema},"payload":{{"c":{text}}}}}'.encode()
    decoded = decoder.decode(pa.array([record]))
    assert [error.kind for error in decoded.errors.values()] == ([] if wanted else ["range"])
    assert decoded.values.to_pylist() == [{"c": wanted} if wanted else None]
    assert_same(decoder, [record])


@pytest.mark.parametrize("schema", ["double", "float"])
@pytest.mark.parametrize("column", ["double", "float"])
def test_numbers_that_json_writes_as_texts(schema: str, column: str) -> None:
    whole = struct(c=field(schema), a=field("array", items=field(schema)))
    decoder = ConnectJson(parse_type(f"struct<c: {column}, a: array<{column}>>")[0])
    texts = ["NaN", "Infinity", "-Infinity"]
    decoded = decoder.decode(pa.array([compact(whole, {"c": text, "a": [text, 1.5]}) for text in [*texts, "1.5"]]))
    numbers = [{"c": float(text), "a": [float(text), 1.5]} for text in texts]
    assert repr(decoded.values.to_pylist()) == repr([*numbers, None])
    assert decoded.errors == {3: DecodeError("type", f"column c: expected {column}, found a string")}


FRACTION, NO_FIT = "found a number with a fraction", "found a number that does not fit"


@pytest.mark.parametrize(
    ("kind", "column", "text", "wanted"),
    [
        (field("int64"), "long", "1.5", ("type", f"long, {FRACTION}")),
        (field("int64"), "long", "-0.9", ("type", f"long, {FRACTION}")),
        (field("int32"), "int", "1.9", ("type", f"int, {FRACTION}")),
        (field("int64"), "long", "true", ("type", "long, found a boolean")),
        (field("int64"), "long", '"1"', ("type", "long, found a string")),
        (field("int64"), "long", "9223372036854775808", ("range", f"long, {NO_FIT}")),
        (field("int64"), "long", "1e400", ("range", f"long, {NO_FIT}")),
        (field("int32"), "int", "2147483648", ("range", f"int, {NO_FIT}")),
        (field("int64"), "long", "9007199254740993.0", 9007199254740993),
        (field("int64"), "long", "1.0", 1),
        (field("int32"), "int", "1e3", 1000),
        (field("int64"), "decimal(5,2)", "1.5", Decimal("1.5")),
        (field("int64"), "decimal(5,2)", "true", ("type", "decimal(5,2), found long that is no number")),
        (field("int64"), "double", "true", ("type", "double, found a boolean")),
        (field("int64"), "double", "9007199254740993", 9007199254740992.0),
        (field("double"), "double", "true", ("type", "double, found a boolean")),
        (field("double"), "double", "1e400", ("range", f"double, {NO_FIT}")),
        (field("double"), "double", f"1{'0' * 400}", ("range", f"double, {NO_FIT}")),
        (field("float"), "float", "1e39", ("range", f"float, {NO_FIT}")),
        (field("double"), "float", "-1e400", ("range", f"float, {NO_FIT}")),
        (field("int32", f"{_CONNECT}Date"), "date", "19000.7", ("type", f"date, {FRACTION}")),
        (field("int64", f"{_CONNECT}Timestamp"), "timestamp", "true", ("type", "timestamp, found a boolean")),
        (field("int64", f"{_CONNECT}Timestamp"), "timestamp", "1.5", ("type", f"timestamp, {FRACTION}")),
        (field("int32", f"{_CONNECT}Time"), "string", "1.5", ("type", f"string, {FRACTION}")),
    ],
)
def test_json_beside_a_schema_that_does_not_keep_to_it(
    kind: dict[str, Any], column: str, text: str, wanted: Any
) -> None:
    """As in JSON without a schema; alone, in arrays, and as a key that is one value."""
    declared = parse_type(column)[0]
    for schema, of_type, payload, place, shown in (
        (struct(c=kind), declared, f'{{"c":{text}}}', "c", lambda value: {"c": value}),
        (struct(c=field("array", items=kind)), pa.list_(declared), f'{{"c":[{text}]}}', "c.element",
         lambda value: {"c": [value]}),
        (kind, declared, text, "c", lambda value: {"c": value}),
    ):  # fmt: skip
        raw = f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode()
        decoder = ConnectJson(pa.struct([("c", of_type)]))
        assert_same(decoder, [raw])
        decoded = decoder.decode(pa.array([raw]))
        if isinstance(wanted, tuple):
            assert decoded.errors == {0: DecodeError(wanted[0], f"column {place}: expected {wanted[1]}")}
        else:
            assert (decoded.errors, decoded.values.to_pylist()) == ({}, [shown(wanted)])


DECIMAL = field("bytes", f"{_CONNECT}Decimal", parameters={"scale": "2"})


@pytest.mark.parametrize(
    ("text", "column", "wanted"),
    [
        ("1.25", "decimal(5,2)", Decimal("1.25")),
        ("-7", "decimal(5,2)", Decimal(-7)),
        ("12345678901234567890123456789012345.67", "decimal(38,2)", Decimal("12345678901234567890123456789012345.67")),
        ("0.1", "decimal(38,20)", Decimal("0.1")),
        ("1.5E+2", "decimal(5,2)", Decimal(150)),
        ("1.250", "string", "1.250"),
        ('"AH0="', "decimal(5,2)", Decimal("1.25")),
        ("1.255", "decimal(5,2)", "range"),
        ("true", "decimal(5,2)", "type"),
        ("NaN", "decimal(5,2)", "undecodable"),
    ],
)
def test_decimals_as_numbers(text: str, column: str, wanted: Any) -> None:
    """`decimal.format: NUMERIC`: the digits as they are written, with no float in between."""
    whole = struct(c=DECIMAL, d=field("double"))
    record = compact(whole, {"c": 0, "d": 0.5}).replace(b'"c":0,', f'"c":{text},'.encode())
    decoder = ConnectJson(pa.struct([("c", parse_type(column)[0]), ("d", pa.float64())]))
    decoded = decoder.decode(pa.array([record, record]))
    if isinstance(wanted, str) and column != "string":
        assert {error.kind for error in decoded.errors.values()} == {wanted}
    else:
        assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"c": wanted, "d": 0.5}] * 2)


ID = struct(id=field("int64"))
LONG = pa.struct([("id", pa.int64())])


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (b"{", "undecodable"),
        (b'{"id":1}', "undecodable"),
        (b"[]", "undecodable"),
        (compact(None, {"id": 1}), "schema"),
        (compact({"type": "complex"}, {"id": 1}), "schema"),
        (compact(struct(id=field("string")), {"id": "1"}), "schema"),
        (compact(ID, {"id": 2**63}), "range"),
        (compact(ID, {"id": "x"}), "type"),
        (compact(ID, {"id": 1}) + b"}", "undecodable"),
        (compact(ID, {"id": 1})[:-1], "undecodable"),
        (compact(ID, {"id": 1})[:-1] + b',"schema":{}}', "schema"),
    ],
)
def test_bad_records_leave_others_alone(record: bytes, kind: str) -> None:
    good = compact(ID, {"id": 1})
    decoded = ConnectJson(LONG).decode(raw_values(good, record, good, None, compact(ID, None)))
    assert_same(ConnectJson(LONG), [good, record, good, None, compact(ID, None)])
    assert decoded.values.to_pylist() == [{"id": 1}, None, {"id": 1}, None, None]
    assert {row: error.kind for row, error in decoded.errors.items()} == {1: kind}
    assert "x" not in decoded.errors[1].message.split()


def test_a_schema_text_in_the_payload_is_not_taken_for_the_schema() -> None:
    schema = struct(c=field("string", default='","payload":'))
    decoder = ConnectJson(pa.struct([("c", pa.string())]))
    records = [compact(schema, {"c": text}) for text in ('{"schema":1,"payload":2}', '","payload":', "}")]
    values = decoder.decode(pa.array(records)).values.to_pylist()
    assert [v["c"] for v in values] == ['{"schema":1,"payload":2}', '","payload":', "}"]


def test_key_that_is_one_value() -> None:
    decoded = ConnectJson(LONG).decode(pa.array([compact(field("int64", optional=False), 7)]))
    assert decoded.values.to_pylist() == [{"id": 7}]
    fitting = ConnectJson(JsonDialect(best_fit=True).of_row(LONG)).decode(pa.array([compact(field("string"), "7")]))
    assert (fitting.errors, fitting.values.to_pylist()) == ({}, [{"id": 7}])


@pytest.mark.parametrize(
    ("schema", "payload", "wanted"),
    [
        (field("int64", f"{_CONNECT}Timestamp"), 1500, "1970-01-01T00:00:01.500000Z"),
        (field("int32", f"{_CONNECT}Date"), 1, "1970-01-02"),
        (field("bytes"), "YWI=", "YWI="),
        (field("array", items=field("int32", f"{_CONNECT}Date")), [1], '["1970-01-02"]'),
        (struct(a=field("bytes")), {"a": "YWI="}, '{"a":"YWI="}'),
    ],
)
def test_text_that_fits_best_says_what_is_meant(schema: dict[str, Any], payload: Any, wanted: str) -> None:
    kind = JsonDialect(best_fit=True).of_row(pa.struct([pa.field("c", pa.string())]))
    raw = compact(struct(c=schema), {"c": payload})
    assert_same(ConnectJson(kind), [raw])
    decoded = ConnectJson(kind).decode(pa.array([raw]))
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"c": wanted}])


def test_required_column_that_is_null() -> None:
    decoder = ConnectJson(pa.struct([pa.field("id", pa.int64(), nullable=False)]))
    lying = struct(id=field("int64", optional=False))
    decoded = decoder.decode(pa.array([compact(ID, {"id": None}), compact(lying, {"id": None})]))
    assert decoded.errors == dict.fromkeys(
        [0, 1], DecodeError("missing", "column id: expected long not null, found null")
    )


@pytest.mark.parametrize("payload", [10**18, "2024-02-29", [], {"a": 1}])
def test_fields_that_their_schema_lacks_are_absent(payload: object) -> None:
    """As for Connect: nothing says what their values mean."""
    decoder = ConnectJson(row_type({"id": "long", "at": "timestamp", "s": "struct<at: timestamp, id: long>",
                                    "l": "array<struct<at: timestamp, id: long>>"}))  # fmt: skip
    schema = struct(id=field("int64"), s=ID, l=field("array", items=ID))
    part = {"at": payload, "id": 1}
    record = compact(schema, {**part, "s": part, "l": [part]})
    assert_same(decoder, [record])
    decoded, inner = decoder.decode(pa.array([record])), {"at": None, "id": 1}
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{**inner, "s": inner, "l": [inner]}])
    required = ConnectJson(pa.struct([pa.field("at", pa.int64(), nullable=False)]))
    wrong = DecodeError("missing", "column at: expected long not null, found nothing")
    assert required.decode(pa.array([record])).errors == {0: wrong}


_UNLIMITED = struct(scale=field("int32"), value=field("bytes")) | {"name": f"{_DATA}VariableScaleDecimal"}
_CENTS = field("bytes", f"{_CONNECT}Decimal", parameters={"scale": "2", "connect.decimal.precision": "5"})


@pytest.mark.parametrize(
    ("schema", "payload", "expected"),
    [
        (field("array", items=_CENTS), ["fQ==", None], "[1.25,null]"),
        (field("array", items=field("int32", f"{_TIME}Date")), [18262], '["2020-01-01"]'),
        (field("array", items=field("int64", f"{_TIME}MicroTimestamp")), [1], '["1970-01-01T00:00:00.000001"]'),
        (field("array", items=field("int64", f"{_CONNECT}Timestamp")), [1], '["1970-01-01T00:00:00.001000Z"]'),
        (field("array", items=field("int64", f"{_TIME}MicroTime")), [86_400_000_000], '["24:00:00"]'),
        (field("map", keys=field("string"), values=_CENTS), {"a": "fQ=="}, '{"a":1.25}'),
        (struct(a=_CENTS, b=field("bytes")), {"a": "fQ==", "b": "AA=="}, '{"a":1.25,"b":"AA=="}'),
        (field("array", items=_UNLIMITED), [{"scale": 40, "value": "Aw=="}], f"[0.{'0' * 39}3]"),
        (_UNLIMITED, {"scale": 1, "value": "BNI="}, "123.4"),
        (_CENTS | {"parameters": {"scale": "2", "connect.decimal.precision": "60"}}, "fQ==", "1.25"),
    ],
)
def test_value_that_fits_no_other_column_is_text_that_shows_its_meaning(
    schema: Any, payload: Any, expected: str
) -> None:
    whole = struct(c=schema)
    decoder = ConnectJson(pa.struct([as_text(pa.field("c", pa.string()))]))
    decoded = decoder.decode(pa.array([compact(whole, {"c": payload})]))
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"c": expected}])


def test_text_in_arrays_and_maps_takes_any_value_too() -> None:
    lists = {"type": "array", "items": field("int64"), "field": "l"}
    maps = {"type": "map", "keys": field("string"), "values": field("boolean"), "field": "m"}
    kind = pa.struct(list(parse_columns({"l": "array<text>", "m": "map<string,text>"})))
    decoded = ConnectJson(kind).decode(
        pa.array([compact({"type": "struct", "fields": [lists, maps]}, {"l": [5], "m": {"a": True}})])
    )
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"l": ["5"], "m": [("a", "true")]}])


def test_column_that_records_bring_holds_numbers_of_any_digits() -> None:
    whole = struct(a=_UNLIMITED, b=_CENTS | {"parameters": {"connect.decimal.precision": "60"}}, c=_CENTS)
    decoder = ConnectJson(pa.struct([("id", pa.int64())]), Watch("report"))
    found = decoder.decode(pa.array([compact(whole, {"a": {"scale": 0, "value": "AQ=="}, "b": "AQ==", "c": "AQ=="})]))
    types = {path: one.type for path, one in found.unknown.by_path.items()}
    assert types == {("a",): pa.string(), ("b",): pa.string(), ("c",): pa.decimal128(5, 2)}


def test_field_of_a_wider_type_than_its_column_is_reported_also_of_records_that_do_not_fit() -> None:
    whole = struct(n=field("int64"), m=field("int64"), same=field("int32"))
    kind = pa.struct([("n", pa.int32()), ("m", pa.int32()), ("same", pa.int32())])
    decoder = copied(ConnectJson(kind, Watch("report", widens=frozenset({("n",), ("same",)}))))
    found = decoder.decode(pa.array([compact(whole, {"n": 2**40, "m": 1, "same": 1})]))
    assert found.errors[0].kind == "range"
    assert {path: one.type for path, one in found.unknown.by_path.items()} == {("n",): pa.int64()}


def test_parts_of_a_column_become_wider_and_what_has_its_name_elsewhere_does_not() -> None:
    """`l`, `m` and `s.n` are brought; `declared.n` only has the name of a column that was."""
    record = {**struct(n=field("int64"), more=field("int32")), "optional": True}
    lists = {"type": "array", "items": field("int64"), "optional": True}
    maps = {"type": "map", "keys": field("string"), "values": record, "optional": True}
    whole = struct(n=field("int64"), s=record, declared=record, l=lists, m=maps)
    part = pa.struct([("n", pa.int32()), ("more", pa.int32())])
    kind = pa.struct(
        [
            ("n", pa.int32()),
            ("s", part),
            ("declared", part),
            ("l", pa.list_(pa.field("element", pa.int32()))),
            ("m", pa.map_(pa.string(), pa.field("value", part))),
        ]
    )
    brought = {("n",), ("s", "n"), ("l", "element"), ("m", "value", "n")}
    decoder = copied(ConnectJson(kind, Watch("report", widens=frozenset(brought))))
    found = decoder.decode(pa.array([compact(whole, {"n": 1, "s": None, "declared": None, "l": [], "m": {}})]))
    assert {path: one.type for path, one in found.unknown.by_path.items()} == dict.fromkeys(brought, pa.int64())

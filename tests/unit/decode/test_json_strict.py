"""What the strict JSON decoder accepts and refuses, type by type."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.decode.base import DecodeError
from jobs.decode.json_strict import MAX_DEPTH, StrictJson
from jobs.schema.types import parse_columns
from tests.kit.arrow import copied, raw_values, row_type


def decode(kind: str, value: str | bytes) -> Any:
    """The decoded value of one JSON value in a column of this type, or its error."""
    record = b'{"x":' + (value if isinstance(value, bytes) else value.encode()) + b"}"
    decoded = StrictJson(row_type({"x": kind})).decode(raw_values(record))
    assert decoded.values[0].is_valid != bool(decoded.errors)
    return decoded.errors[0] if decoded.errors else decoded.values[0].as_py()["x"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("int", "1", 1),
        ("int", "1.0", 1),
        ("int", "1e3", 1000),
        ("int", "-0", 0),
        ("int", "0e99999999999999", 0),
        ("int", "2147483647", 2**31 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "9007199254740993.0", 2**53 + 1),
        ("float", "0.1", 0.10000000149011612),
        ("double", "9007199254740993", 9007199254740992.0),
        ("double", "1e-400", 0.0),
        ("decimal(3,1)", "1", Decimal("1.0")),
        ("decimal(3,1)", '"-12.50"', Decimal("-12.5")),
        ("decimal(3,1)", "1e1", Decimal("10.0")),
        ("decimal(38,0)", "99999999999999999999999999999999999999", Decimal("9" * 38)),
        ("decimal(3,1)", '"+.5"', Decimal("0.5")),
        ("decimal(3,1)", "0.00000000000", Decimal("0.0")),
        ("string", '"a\\u0000\\ud83d\\ude00é"', "a\x00😀é"),
        ("binary", '"AP8="', b"\x00\xff"),
        ("date", '"2013-01-31"', date(2013, 1, 31)),
        ("date", "15706", date(2013, 1, 1)),
        ("timestamp", '"2013-01-01T05:00:00Z"', datetime(2013, 1, 1, 5, tzinfo=UTC)),
        ("timestamp", '"2013-01-01t05:00:00z"', datetime(2013, 1, 1, 5, tzinfo=UTC)),
        ("timestamp", '"2013-01-01 05:00:00.123456789-05:00"', datetime(2013, 1, 1, 10, 0, 0, 123456, tzinfo=UTC)),
        ("timestamp", '"2013-01-01T05:00:00"', datetime(2013, 1, 1, 5, tzinfo=UTC)),
        ("timestamp", "1357016400001", datetime(2013, 1, 1, 5, 0, 0, 1000, tzinfo=UTC)),
        ("timestamp", "-1", datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        ("timestamp_ntz", '"2013-01-01T05:00"', datetime(2013, 1, 1, 5)),
        ("timestamp_ntz", "1357016400000", datetime(2013, 1, 1, 5)),
        ("array<int>", "[1,null]", [1, None]),
        ("map<string,int>", '{"a":1,"b":null,"a":2}', [("a", 2), ("b", None)]),
        ("struct<a: int, b: int>", '{"a":1,"z":[{}]}', {"a": 1, "b": None}),
        ("int", "null", None),
        ("int", '1,"x":2', 2),
        ("int", '1,"y":123456789012345678901234567890e400', 1),
    ],
)
def test_accepted(kind: str, value: str, expected: Any) -> None:
    assert decode(kind, value) == expected


OR_NUMBER = "or a number), found another string"


@pytest.mark.parametrize(
    ("kind", "value", "error", "message"),
    [
        ("boolean", "1", "type", "column x: expected boolean, found a number"),
        ("boolean", '"true"', "type", "column x: expected boolean, found a string"),
        ("int", "true", "type", "column x: expected int, found a boolean"),
        ("int", '"7"', "type", "column x: expected int, found a string"),
        ("int", "1.5", "type", "column x: expected int, found a number with a fraction"),
        ("int", "2147483648", "range", "column x: expected int, found a number that does not fit"),
        ("long", "1e99999999999999999999", "range", "column x: expected long, found a number that does not fit"),
        ("long", "9" * 5000, "range", "column x: expected long, found a number that does not fit"),
        ("float", "1e39", "range", "column x: expected float, found a number that does not fit"),
        ("double", "1e400", "range", "column x: expected double, found a number that does not fit"),
        ("double", "9" * 5000, "range", "column x: expected double, found a number that does not fit"),
        ("decimal(3,1)", "1.23", "range", "column x: expected decimal(3,1), found a number that does not fit"),
        ("decimal(3,1)", "100", "range", "column x: expected decimal(3,1), found a number that does not fit"),
        ("decimal(3,1)", '"a"', "type", "column x: expected decimal(3,1), found a string that is no number"),
        ("decimal(3,1)", "[]", "type", "column x: expected decimal(3,1), found an array"),
        ("decimal(3,1)", '"NaN"', "type", "column x: expected decimal(3,1), found a string that is no number"),
        ("long", '"NaN"', "type", "column x: expected long, found a string"),
        ("double", '"nan"', "type", "column x: expected double, found a string"),
        ("double", '"1.5"', "type", "column x: expected double, found a string"),
        ("float", '"inf"', "type", "column x: expected float, found a string"),
        ("string", "5", "type", "column x: expected string, found a number"),
        ("string", "{}", "type", "column x: expected string, found an object"),
        ("binary", '"AP8"', "type", "column x: expected binary, found a string that is no base64"),
        ("date", '"2013-02-29"', "type", "column x: expected date, found a string that is no date YYYY-MM-DD"),
        ("date", "2932897", "range", "column x: expected date, found a number that does not fit"),
        ("timestamp", '"2013-01-01"', "type", f"column x: expected timestamp (an RFC 3339 time {OR_NUMBER}"),
        (
            "timestamp",
            '"9999-12-31T23:59:59-01:00"',
            "range",
            "column x: expected timestamp, found a year outside 1 to 9999",
        ),
        (
            "timestamp_ntz",
            '"2013-01-01T05:00:00Z"',
            "type",
            f"column x: expected timestamp_ntz (an RFC 3339 time without zone {OR_NUMBER}",
        ),
        ("array<int not null>", "[1,null]", "missing", "column x.element: expected int, found null"),
        ("array<int>", '[1,"a"]', "type", "column x.element: expected int, found a string"),
        ("map<string,int not null>", '{"k":null}', "missing", "column x.value: expected int, found null"),
        ("struct<a: int not null>", "{}", "missing", "column x.a: expected int not null, found nothing"),
        ("struct<a: int>", "[]", "type", "column x: expected an object, found an array"),
        ("int not null", "null", "missing", "column x: expected int not null, found null"),
        ("int not null", '1,"x":null', "missing", "column x: expected int not null, found null"),
        ("string", b'"\xff"', "undecodable", "no UTF-8 at byte 6"),
        ("string", '"\\ud800"', "undecodable", "half a surrogate pair in a string"),
        ("int", '1,"y":"\\udc00"', "undecodable", "half a surrogate pair in a string"),
        ("double", "NaN", "undecodable", "no JSON: NaN and Infinity are not allowed"),
        ("int", '1,"y":-Infinity', "undecodable", "no JSON: NaN and Infinity are not allowed"),
        ("int", "1}{", "undecodable", "no JSON: extra data at character 7"),
        ("int", "", "undecodable", "no JSON: expecting value at character 5"),
        ("string", '"a', "undecodable", "no JSON: unterminated string at character 5"),
        ("string", '"\x01"', "undecodable", "no JSON: invalid control character at character 6"),
    ],
)
def test_refused(kind: str, value: str | bytes, error: str, message: str) -> None:
    assert decode(kind, value) == DecodeError(error, message)


@pytest.mark.parametrize("kind", ["double", "float", "array<double>", "struct<f: float>"])
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_writes_as_texts(kind: str, text: str) -> None:
    """As Debezium's and Jackson's JSON have them."""
    value = {"array<double>": f'["{text}"]', "struct<f: float>": f'{{"f":"{text}"}}'}.get(kind, f'"{text}"')
    wanted = {"array<double>": [float(text)], "struct<f: float>": {"f": float(text)}}.get(kind, float(text))
    assert repr(decode(kind, value)) == repr(wanted)


def test_no_message_holds_a_value() -> None:
    kinds = ["boolean", "int", "float", "decimal(3,1)", "binary", "date", "timestamp", "timestamp_ntz", "array<int>"]
    for kind in [*kinds, "map<string,int>", "struct<a: int>"]:
        for value in ['"s3cret"', '{"s3cret":"s3cret"}', '["s3cret"]', '"s3cret', '"\\s3cret"', '"s3cret" s3cret']:
            error = decode(kind, value)
            if isinstance(error, DecodeError):
                assert "s3cret" not in error.message
            else:
                assert error == {"a": None}  # an object without the field that is declared


@pytest.mark.parametrize(
    "record", [b"", b" ", b"null", b"[]", b"1", b'"a"', b"\xef\xbb\xbf{}", b"{}{}", b"{}\x00", b"\x00"]
)
def test_a_struct_is_declared_and_the_record_is_no_object(record: bytes) -> None:
    decoded = StrictJson(pa.struct([("x", pa.int32())])).decode(raw_values(record, b" {} \n", None))
    assert list(decoded.errors) == [0]
    assert decoded.values.to_pylist() == [None, {"x": None}, None]


def test_scalars_stand_alone_when_declared() -> None:
    decoded = StrictJson(pa.string()).decode(raw_values(b'"a"', b"1", None, b"null"))
    assert decoded.values.to_pylist() == ["a", None, None, None]
    assert decoded.errors == {
        1: DecodeError("type", "the record: expected string, found a number"),
        3: DecodeError("type", "the record: expected string, found null"),
    }


def test_depth_counts_brackets_outside_of_strings() -> None:
    assert decode("int", '1,"y":' + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)) == 1
    assert decode("int", '1,"y":"' + "[" * 1000 + '\\""') == 1
    assert decode("int", '1,"y":' + "[{}," * 300 + "1" + "]" * 300).kind == "undecodable"
    assert decode("int", '1,"y":[' + "{}," * 300 + "{}]") == 1
    assert decode("int", '1,"y":' + "[" * 100_000).kind == "undecodable"


def test_ignored_case_finds_declared_fields_in_any_spelling() -> None:
    kind = pa.struct(
        list(parse_columns({"Id": "long not null", "at": "struct<Place: string>", "tags": "map<string,int>"}))
    )
    decoder = copied(StrictJson(kind, ignore_case=True))
    records = [b'{"ID": 1, "AT": {"place": "x", "other": 2}, "Tags": {"A": 1, "a": 2}}', b'{"id": 2, "x": 1, "X": 2}']
    decoded = decoder.decode(raw_values(*records, b'{"id": 1, "ID": 2}', b'{"at": null}'))
    assert decoded.values.to_pylist()[:2] == [
        {"Id": 1, "at": {"Place": "x"}, "tags": [("A", 1), ("a", 2)]},
        {"Id": 2, "at": None, "tags": None},
    ]
    assert "two fields of the name Id" in decoded.errors[2].message
    assert decoded.errors[3].kind == "missing"
    assert StrictJson(kind).decode(raw_values(*records)).errors.keys() == {0, 1}

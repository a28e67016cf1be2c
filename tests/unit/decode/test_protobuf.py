"""Protobuf: every type, presence, Confluent's message indexes, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format

from jobs.decode.base import DecodeError
from jobs.decode.decoders import Schemas
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.parts import SMALL
from jobs.decode.protobuf import Protobuf, RegisteredProtobuf
from jobs.decode.registered import RegisteredSchema, message_indexes
from jobs.schema.protobuf import Messages, compiled, message_class, message_wire
from jobs.schema.types import parse_columns, parse_type, type_name
from jobs.schema.wire import natural_type
from resources.errors import ConfigurationError
from tests.kit.arrow import copied, raw_values, row_type
from tests.kit.in_step import assert_same

COMMON = 'syntax = "proto3"; package common; message Money { int64 units = 1; string currency = 2; }'
SHOP = """
syntax = "proto3";
package shop;
import "common.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 x = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { string sku = 1; uint32 count = 2; }
  int64 id = 1;
  optional string note = 2;
  State state = 3;
  repeated Line lines = 4;
  map<string, double> tags = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Int64Value maybe = 7;
  common.Money price = 8;
  uint64 huge = 9;
  bytes raw = 10;
  float ratio = 11;
  bool ok = 12;
  repeated sint32 numbers = 13;
  oneof way { string by_mail = 14; int32 by_code = 15; }
}
message Tree { int64 id = 1; repeated Tree children = 2; }
"""
DESCRIPTORS = compiled((COMMON, SHOP), ("common.proto", ""))
COLUMNS = (
    "struct<id: long not null, note: string, state: string not null, "
    "lines: array<struct<sku: string not null, count: long not null> not null> not null, "
    "tags: map<string,double not null> not null, at: timestamp, maybe: long, "
    "price: struct<units: long not null, currency: string not null>, huge: decimal(20,0) not null, "
    "raw: binary not null, ratio: float not null, ok: boolean not null, numbers: array<int not null> not null, "
    "by_mail: string, by_code: int>"
)
DEFAULTS: dict[str, object] = {
    "id": 0, "note": None, "state": "NEW", "lines": [], "tags": [], "at": None, "maybe": None, "price": None,
    "huge": Decimal(0), "raw": b"", "ratio": 0.0, "ok": False, "numbers": [], "by_mail": None, "by_code": None,
}  # fmt: skip
FULL = {
    "id": str(2**63 - 1), "note": "", "state": "PAID", "lines": [{"sku": "a", "count": 2**32 - 1}, {}],
    "tags": {"w": 0.5}, "at": "9999-12-31T23:59:59.999999999Z", "maybe": "0", "price": {"units": "-5"},
    "huge": str(2**64 - 1), "raw": "/w==", "ratio": "-Infinity", "ok": True, "numbers": [-1, 2**31 - 1], "byCode": 0,
}  # fmt: skip


def made(value: dict[str, Any], name: str = "shop.Order") -> bytes:
    message = message_class(Messages(DESCRIPTORS).named(name))()
    raw: bytes = json_format.ParseDict(value, message).SerializeToString()
    return raw


def decoder(columns: str = COLUMNS, name: str = "shop.Order") -> Protobuf:
    return copied(Protobuf(parse_type(columns)[0], DESCRIPTORS, name))


def test_columns_of_the_message() -> None:
    assert type_name(natural_type(message_wire(Messages(DESCRIPTORS).named("shop.Order")))) == COLUMNS


def test_every_type_with_extreme_values_and_with_none() -> None:
    decoded = decoder().decode(raw_values(made(FULL), b"", None))
    assert assert_same(decoder(), [made(FULL), b"", None]) == 3
    assert decoded.errors == {}
    full, defaults, tombstone = decoded.values.to_pylist()
    assert defaults == DEFAULTS
    assert tombstone is None
    assert full == {
        "id": 2**63 - 1, "note": "", "state": "PAID",
        "lines": [{"sku": "a", "count": 2**32 - 1}, {"sku": "", "count": 0}], "tags": [("w", 0.5)],
        "at": datetime.max.replace(tzinfo=UTC), "maybe": 0, "price": {"units": -5, "currency": ""},
        "huge": Decimal(2**64 - 1), "raw": b"\xff", "ratio": float("-inf"), "ok": True, "numbers": [-1, 2**31 - 1],
        "by_mail": None, "by_code": 0,
    }  # fmt: skip


CONNECT = """
syntax = "proto3";
package shop;
import "confluent/type/decimal.proto";
import "google/protobuf/struct.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
message Sale {
  confluent.type.Decimal price = 1;
  google.type.Date day = 2;
  google.type.TimeOfDay at = 3;
  google.protobuf.Struct more = 4;
  repeated google.type.Date days = 5;
}
"""


def test_values_that_are_messages() -> None:
    """As Confluent's ProtobufConverter writes Connect's decimals, dates and times; and a Struct as JSON."""
    descriptors = compiled((CONNECT,), ("",))
    columns = "struct<price: decimal(10,2), day: date, at: string, more: text, days: array<date>>"
    message = message_class(Messages(descriptors).named("shop.Sale"))
    day = {"year": 1969, "month": 12, "day": 31}
    full: dict[str, Any] = {
        "price": {"value": "/3s=", "precision": 4, "scale": 2}, "day": day, "days": [day],
        "at": {"hours": 23, "minutes": 59, "seconds": 59, "nanos": 1000}, "more": {"a": [1.5, 2, None, True, "x"]},
    }  # fmt: skip
    records = [json_format.ParseDict(one, message()).SerializeToString() for one in (full, {}, {"day": {"year": 2024}})]
    made = copied(Protobuf(parse_type(columns)[0], descriptors, "shop.Sale")).decode(pa.array(records))
    before = date(1969, 12, 31)
    assert made.values.to_pylist() == [
        {"price": Decimal("-1.33"), "day": before, "at": "23:59:59.000001", "more": '{"a":[1.5,2,null,true,"x"]}',
         "days": [before]},
        {"price": None, "day": None, "at": None, "more": None, "days": []},
        None,
    ]  # fmt: skip
    assert [error.message for error in made.errors.values()] == [
        "column day: expected date, found a year, month and day that are no date"
    ]
    as_parts = Protobuf(parse_type("struct<day: struct<year: int, day: int>>")[0], descriptors, "shop.Sale")
    assert as_parts.decode(pa.array(records)).values.to_pylist() == [
        {"day": {"year": 1969, "day": 31}}, {"day": None}, {"day": {"year": 2024, "day": 0}}
    ]  # fmt: skip
    all_text = Protobuf(pa.struct(list(parse_columns({"day": "text", "at": "text"}))), descriptors, "shop.Sale")
    text = {"day": "1969-12-31", "at": "23:59:59.000001"}
    assert all_text.decode(pa.array(records[:1])).values.to_pylist() == [text]


def test_json_has_no_infinity() -> None:
    descriptors = compiled((CONNECT,), ("",))
    message = message_class(Messages(descriptors).named("shop.Sale"))()
    message.more.fields["n"].number_value = float("nan")
    made = Protobuf(parse_type("struct<more: string>")[0], descriptors, "shop.Sale")
    assert made.decode(pa.array([message.SerializeToString()])).values.to_pylist() == [{"more": '{"n":"NaN"}'}]


def test_natural_types_of_values_that_are_messages() -> None:
    descriptors = compiled((CONNECT,), ("",))
    assert type_name(natural_type(message_wire(Messages(descriptors).named("shop.Sale")))) == (
        "struct<price: decimal(38,9), day: date, at: string, more: string, days: array<date not null> not null>"
    )


@pytest.mark.parametrize(
    ("columns", "value", "kind"),
    [
        ("struct<huge: long>", {"huge": str(2**63)}, "range"),
        ("struct<note: string not null>", {}, "missing"),
        ("struct<missing: long not null>", {}, "missing"),
        ("struct<price: struct<units: int>>", {"price": {"units": str(2**31)}}, "range"),
    ],
)
def test_values_that_do_not_fit(columns: str, value: dict[str, Any], kind: str) -> None:
    decoded = decoder(columns).decode(pa.array([made(value)]))
    assert decoded.errors[0].kind == kind
    assert decoded.values.to_pylist() == [None]


def test_unknown_enum_value_is_its_number() -> None:
    assert decoder("struct<state: string>").decode(pa.array([b"\x18\x07"])).values.to_pylist() == [{"state": "7"}]


def test_message_in_itself_can_be_left_out() -> None:
    raw = made({"id": "1", "children": [{"id": "2"}]}, "shop.Tree")
    assert decoder("struct<id: long>", "shop.Tree").decode(pa.array([raw])).values.to_pylist() == [{"id": 1}]


def test_broken_bytes() -> None:
    errors = decoder().decode(pa.array([b"\x08", b"\xff\xff", made({})])).errors
    assert errors == dict.fromkeys([0, 1], DecodeError("undecodable", "the record is no Protobuf message"))


@pytest.mark.parametrize(
    ("columns", "name", "says"),
    [
        ("struct<id: string>", "shop.Order", "column id: expected string"),
        ("struct<id: long>", "shop.Nothing", "there is no Protobuf message 'shop.Nothing'"),
    ],
)
def test_refused_when_the_file_is_loaded(columns: str, name: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        decoder(columns, name)


def test_text_that_fits_best() -> None:
    kind = JsonDialect(best_fit=True).of_row(row_type({"id": "string", "raw": "string", "at": "string"}))
    raw = made({"id": "7", "raw": "/w==", "at": "2024-02-29T10:00:00Z"})
    fitting = Protobuf(kind, DESCRIPTORS, "shop.Order")
    assert_same(fitting, [raw])
    (row,) = copied(fitting).decode(raw_values(raw)).values.to_pylist()
    assert row == {"id": "7", "raw": "/w==", "at": "2024-02-29T10:00:00Z"}
    # Another pipeline in the same process, whose columns are of the same Arrow types, reads in its own way.
    with pytest.raises(ConfigurationError, match="column id: expected string"):
        decoder("struct<id: string, raw: string, at: string>").decode(raw_values(raw))


def test_text_that_is_no_schema() -> None:
    with pytest.raises(ConfigurationError, match="does not accept the schema"):
        compiled(("message {",), ("",))
    with pytest.raises(ConfigurationError, match="not a complete"):
        Messages(b"\xff\xff")


@pytest.mark.parametrize(
    ("rest", "wanted"),
    [
        (b"\x00abc", ((0,), 1)),
        (b"\x02\x00", ((0,), 2)),
        (b"\x04\x02\x00x", ((1, 0), 3)),
        (b"\x02\x80\x02", ((128,), 3)),
    ],
)
def test_message_indexes(rest: bytes, wanted: tuple[tuple[int, ...], int]) -> None:
    assert message_indexes(rest) == wanted


def test_schema_ids_and_message_indexes() -> None:
    schema = RegisteredSchema(7, "PROTOBUF", (COMMON, SHOP), ("common.proto", ""), DESCRIPTORS)
    broken = RegisteredSchema(8, "PROTOBUF", ("message {",), ("",))
    by_id: Schemas = {7: schema, 8: broken, 9: RegisteredSchema(9, "AVRO", ('"int"',))}
    registered = copied(RegisteredProtobuf(parse_type("struct<id: long, sku: string>")[0], by_id))
    prefix = b"\x00\x00\x00\x00"
    line = message_class(Messages(DESCRIPTORS).named("shop.Order.Line"))(sku="a").SerializeToString()
    raws = [
        prefix + b"\x07\x02\x02" + made({"id": "5"}),  # [1] Order
        prefix + b"\x07\x04\x02\x00" + line,  # [1, 0] Order.Line
        prefix + b"\x07\x00",  # [0] Other
        prefix + b"\x07\x02\x14",  # [10]
        prefix + b"\x08\x00",
        prefix + b"\x09\x00",
        prefix + b"\x0a\x00",
        prefix + b"\x07",
        None,
    ]
    assert assert_same(registered, raws, times=SMALL + 1) == 4
    decoded = registered.decode(raw_values(*raws))
    assert decoded.values.to_pylist()[:3] == [
        {"id": 5, "sku": None},
        {"id": None, "sku": "a"},
        {"id": None, "sku": None},
    ]
    kinds = {row: error.kind for row, error in decoded.errors.items()}
    assert kinds == {3: "schema", 4: "schema", 5: "schema", 6: "schema", 7: "undecodable"}


def test_messages_that_hold_each_other_in_too_many_ways_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.schema.protobuf._MOST_MESSAGES", 100)
    fields = " ".join(f"M{n} f{n} = {n + 1};" for n in range(10))
    text = 'syntax = "proto3"; ' + " ".join(f"message M{n} {{ {fields} }}" for n in range(10))
    schema = RegisteredSchema(1, "PROTOBUF", (text,), ("",), compiled((text,), ("",)))
    decoder = RegisteredProtobuf(pa.struct([("id", pa.int64())]), {1: schema})
    error = decoder.decode(raw_values(b"\0\0\0\0\1\0")).errors[0]
    assert (error.kind, "more than 100 messages in each other" in error.message) == ("schema", True)

"""Fields that no column takes: reported with their types, refused, or kept as JSON, the same in every format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pytest
from google.protobuf import json_format

from jobs.decode.base import Decoded, Decoder
from jobs.decode.decoders import Schemas, decoder_for
from jobs.decode.envelope import Enveloped
from jobs.decode.envelope_shape import EnvelopeRules
from jobs.decode.json_strict import StrictJson
from jobs.decode.registered import RegisteredSchema
from jobs.decode.unknown import Watch
from jobs.schema.found_fields import shown
from jobs.schema.protobuf import Messages, compiled, message_class
from jobs.schema.types import type_name
from tests.kit.arrow import copied, raw_values, row_type
from tests.kit.avro import encoded, record, text

COLUMNS = {"id": "long", "s": "struct<x: long>", "l": "array<struct<x: long>>"}
RESCUE = Watch("rescue", "_rescued")
MANY = 200  # enough for Arrow's reader


def found(decoded: Decoded) -> dict[str, tuple[str | None, int]]:
    return {
        shown(path): (type_name(one.type) if one.type is not None else None, one.records)
        for path, one in decoded.unknown.by_path.items()
    }


def json_decoders(columns: dict[str, str], watch: Watch) -> list[Decoder]:
    """The fast one, and the one whose answer is the rule."""
    return [
        copied(decoder_for("json", row_type(columns), watch=watch)),
        copied(StrictJson(row_type(columns), watch=watch)),
    ]


@pytest.mark.parametrize("number", [0, 1], ids=["fast", "strict"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "long"),
        ([1, 2.5], "double"),
        ([1, "a"], "string"),
        (["2026-01-01T00:00:00Z"], "string"),
        ([True], "boolean"),
        ([10**25], "string"),
        ([1e19], "string"),
        ([-(2.0**63), 1.5], "string"),
        ([5, 9.2e18], "double"),
        ([[1], [2.5]], "array<double>"),
        ([{"a": 1}, {"b": "x"}], "struct<a: long, b: string>"),
        ([{"a": 1}, 5], "string"),
        ([{"a": None, "b": 1, "c": []}], "struct<b: long>"),
    ],
)
def test_unknown_field_of_json_is_reported_with_the_type_that_takes_all_values(
    number: int, values: list[object], kind: str
) -> None:
    records = [{"id": n, "new": values[n % len(values)]} for n in range(MANY)]
    decoded = json_decoders(COLUMNS, Watch())[number].decode(raw_values(*records))
    assert not decoded.errors
    assert decoded.values.field("id").to_pylist() == list(range(MANY))
    assert found(decoded) == {"new": (kind, MANY)}


@pytest.mark.parametrize("number", [0, 1], ids=["fast", "strict"])
def test_nested_fields_have_paths_and_nulls_are_nothing(number: int) -> None:
    one = {"id": 1, "s": {"x": 1, "y": "a"}, "l": [{"x": 1}, {"x": 2, "z": 1.5}], "none": None, "empty": {}, "no": []}
    decoded = json_decoders(COLUMNS, Watch())[number].decode(raw_values(*[one] * MANY))
    assert found(decoded) == {"s.y": ("string", MANY), "l.element.z": ("double", MANY)}
    assert decoded.values[0].as_py() == {"id": 1, "s": {"x": 1}, "l": [{"x": 1}, {"x": 2}]}


@pytest.mark.parametrize("number", [0, 1], ids=["fast", "strict"])
def test_fields_of_bad_records_are_not_reported(number: int) -> None:
    """They would become columns, or make those of good records text."""
    records: list[dict[str, object]] = [{"id": n, "new": n} for n in range(MANY)]
    records[3] = {"new": 1.5, "other": 1}  # it lacks the id
    decoded = json_decoders({"id": "long not null"}, Watch())[number].decode(raw_values(*records))
    assert list(decoded.errors) == [3]
    assert found(decoded) == {"new": ("long", MANY - 1)}


@pytest.mark.parametrize("number", [0, 1], ids=["fast", "strict"])
def test_refused_records_name_the_field_and_others_are_rows(number: int) -> None:
    records: list[dict[str, object]] = [{"id": n} for n in range(MANY)]
    records[3] |= {"secret": "value", "s": {"x": 1, "deep": 2}}
    records[7] |= {"none": None}
    decoded = json_decoders(COLUMNS, Watch("refuse", reasons={"secret": "of no type"}))[number].decode(
        raw_values(*records)
    )
    assert {row: (e.kind, e.message) for row, e in decoded.errors.items()} == {
        3: ("unknown", "no column takes the fields secret, s.deep: of no type")
    }
    assert not decoded.unknown
    assert decoded.values.null_count == 1


@pytest.mark.parametrize("number", [0, 1], ids=["fast", "strict"])
def test_rescued_fields_are_json_with_each_number_as_it_was(number: int) -> None:
    text = b'{"id":1,"big":123456789012345678901234567890,"s":{"x":1,"y":[1.50,"\xc3\xa9"]},"_rescued":7}'
    given = pa.array([text, b'{"id":2}'] * (MANY // 2), pa.binary())
    decoded = json_decoders({**COLUMNS, "_rescued": "string"}, RESCUE)[number].decode(given)
    assert not decoded.errors
    assert decoded.values.field("_rescued").to_pylist()[:2] == [
        '{"big":123456789012345678901234567890,"_rescued":7,"s":{"y":[1.50,"é"]}}',
        None,
    ]
    assert decoded.values.field("s").to_pylist()[:2] == [{"x": 1}, None]


@pytest.mark.parametrize("number", [0, 1], ids=["fast", "strict"])
def test_text_takes_any_value(number: int) -> None:
    values = ["a", 1, 2.50, True, {"b": [1, None]}, [1], None]
    records = [{"id": n, "any": values[n % len(values)]} for n in range(MANY)]
    decoded = json_decoders({"id": "long", "any": "text"}, Watch())[number].decode(raw_values(*records))
    assert not decoded.errors
    expected = ["a", "1", "2.5", "true", '{"b":[1,null]}', "[1]", None]
    assert decoded.values.field("any").to_pylist()[: len(values)] == expected


def test_case_is_ignored_where_it_is_to_be() -> None:
    decoder = decoder_for("json", row_type({"Id": "long", "S": "struct<X: long>"}), ignore_case=True, watch=Watch())
    decoded = decoder.decode(raw_values({"ID": 1, "s": {"x": 1, "Y": 2}, "New": 1}))
    assert found(decoded) == {"New": ("long", 1), "S.Y": ("long", 1)}


@pytest.mark.parametrize("then", ["report", "refuse", "rescue"])
def test_case_is_ignored_in_the_names_of_images_too(then: Literal["report", "refuse", "rescue"]) -> None:
    kind = row_type({"op": "string", "after": "struct<id: long, _rescued: string>"})
    watch = Watch(then, "_rescued", within=("before", "after"))
    decoder = StrictJson(kind, ignore_case=True, watch=watch)
    whole, other = (decoder.decode(raw_values({"op": "c", name: {"id": 1, "x": 2}})) for name in ("after", "After"))
    assert (whole.values, found(whole), [*whole.errors]) == (other.values, found(other), [*other.errors])
    assert found(whole) or whole.errors or whole.values.field("after").to_pylist()[0]["_rescued"] == '{"x":2}'


AVRO = record(
    ("id", "long"),
    ("s", record(("x", "long"), ("at", {"type": "long", "logicalType": "timestamp-millis"}), name="S")),
    ("price", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]),
)


def test_unknown_fields_of_avro_have_the_types_of_their_schema() -> None:
    kind, schema = row_type({"id": "long", "s": "struct<x: long>"}), text(AVRO).encode()
    records = raw_values(*(encoded(AVRO, {"id": n, "s": {"x": n, "at": 0}, "price": Decimal("1.50")}) for n in (1, 2)))
    decoded = copied(decoder_for("avro", kind, schema, watch=Watch())).decode(records)
    assert found(decoded) == {"price": ("decimal(9,2)", 2), "s.at": ("timestamp", 2)}
    refused = decoder_for("avro", kind, schema, watch=Watch("refuse")).decode(records)
    assert refused.errors[0].message == "no column takes the fields price, s.at"
    wider = row_type({"id": "long", "s": "struct<x: long>", "_rescued": "string"})
    rescued = decoder_for("avro", wider, schema, watch=RESCUE).decode(records)
    assert rescued.values.field("_rescued")[0].as_py() == '{"price":1.50,"s":{"at":"1970-01-01T00:00:00Z"}}'


def test_avro_that_contains_itself_is_text() -> None:
    when = {"type": "long", "logicalType": "timestamp-millis"}
    node = record(("v", when), ("next", ["null", "Node"]), name="Node")
    schema = record(("id", "long"), ("tree", node))
    value = {"id": 1, "tree": {"v": 0, "next": {"v": 1, "next": None}}}
    records = raw_values(*[encoded(schema, value)] * MANY)
    watched = decoder_for("avro", row_type({"id": "long"}), text(schema).encode(), watch=Watch()).decode(records)
    assert found(watched) == {"tree": (None, MANY)}
    taken = decoder_for("avro", row_type({"id": "long", "tree": "text"}), text(schema).encode(), watch=Watch("refuse"))
    decoded = copied(taken).decode(records)
    assert not decoded.errors
    assert decoded.values[0].as_py() == {
        "id": 1,
        "tree": '{"v":"1970-01-01T00:00:00Z","next":{"v":"1970-01-01T00:00:00.001000Z","next":null}}',
    }


BEGUN = {"type": "struct", "optional": True, "fields": [], "field": "begun"}
EMPTY_IN_CONNECT = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        BEGUN,
        {"field": "s", "type": "struct", "fields": [{"field": "n", "type": "int64", "optional": True}, BEGUN]},
    ],
}
EMPTY_IN_AVRO = record(
    ("id", "long"),
    ("begun", ["null", record(name="Begun")]),
    ("s", record(("n", ["null", "long"]), ("begun", ["null", "Begun"]), name="S")),
)
EMPTY_IN_PROTOBUF = """
syntax = "proto3";
import "google/protobuf/empty.proto";
message Event {
  message S { optional int64 n = 1; oneof what { google.protobuf.Empty begun = 2; string failed = 3; } }
  int64 id = 1;
  oneof what { google.protobuf.Empty begun = 2; }
  S s = 4;
}
"""
HAS_BEGUN: dict[str, Any] = {"id": 1, "begun": {}, "s": {"n": 2, "begun": {}}}


@pytest.mark.parametrize("format_", ["avro", "protobuf", "connect_json"])
def test_record_without_fields_is_text(format_: str) -> None:
    if format_ == "avro":
        schema, raw = text(EMPTY_IN_AVRO).encode(), encoded(EMPTY_IN_AVRO, HAS_BEGUN)
    elif format_ == "protobuf":
        schema = compiled((EMPTY_IN_PROTOBUF,), ("",))
        message = message_class(Messages(schema).named("Event"))()
        raw = json_format.ParseDict(HAS_BEGUN, message).SerializeToString()
    else:
        schema, raw = b"", json.dumps({"schema": EMPTY_IN_CONNECT, "payload": HAS_BEGUN}).encode()
    records = raw_values(*[raw] * MANY)

    def decoder(watch: Watch, **columns: str) -> Decoder:
        return decoder_for(format_, row_type({"id": "long", **columns}), schema, message="Event", watch=watch)

    more = ", failed: string" if format_ == "protobuf" else ""
    whole = f"struct<n: long, begun: string{more}>"
    assert found(decoder(Watch()).decode(records)) == {"begun": ("string", MANY), "s": (whole, MANY)}
    columns = {"begun": "text", "s": f"struct<n: long, begun: text{more.replace('string', 'text')}>"}
    decoded = copied(decoder(Watch("refuse"), **columns)).decode(records)
    assert not decoded.errors
    value = decoded.values[0].as_py()
    assert (value["begun"], value["s"]["begun"]) == ("{}", "{}")


def test_numbers_that_json_has_not_are_texts_in_json_and_stay_in_a_column_of_text() -> None:
    schema = record(("x", "double"), ("y", "string"), ("v", {"type": "array", "items": "float"}))
    infinite, nan = float("-inf"), float("nan")
    raws = raw_values(*(encoded(schema, {"x": x, "y": "kept", "v": [1.0, nan]}) for x in (infinite, nan)))
    rescuing = decoder_for("avro", row_type({"_rescued": "string"}), text(schema).encode(), watch=RESCUE)
    columns = row_type({"x": "text", "v": "text"})
    of_text = decoder_for("avro", columns, text(schema).encode())
    assert [value["_rescued"] for value in rescuing.decode(raws).values.to_pylist()] == [
        f'{{"x":"{x}","y":"kept","v":[1.0,"NaN"]}}' for x in ("-Infinity", "NaN")
    ]
    assert of_text.decode(raws).values.to_pylist() == [{"x": x, "v": '[1.0,"NaN"]'} for x in ("-Infinity", "NaN")]


def test_unknown_fields_of_connect_json_have_the_types_of_their_schema() -> None:
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "new", "type": "int32"}]}
    records = raw_values(*({"schema": schema, "payload": {"id": n, "new": 5}} for n in range(3)))
    decoder = copied(decoder_for("connect_json", row_type({"id": "long"}), watch=Watch()))
    assert found(decoder.decode(records)) == {"new": ("int", 3)}
    rescued = decoder_for("connect_json", row_type({"id": "long", "_rescued": "string"}), watch=RESCUE).decode(records)
    assert rescued.values.to_pylist()[2] == {"id": 2, "_rescued": '{"new":5}'}


JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "labels": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "part": {"type": "object", "properties": {"x": {"type": "integer"}, "open": {}, "ratio": {"type": "number"}}},
        "wild": {"type": ["integer", "string"]},
        "lists": {"type": "array", "items": {"type": "array", "items": {"$ref": "#/definitions/amount"}}},
        "free": {"type": "object"},
        "never": {"type": "integer"},
        "tree": {"$ref": "#/definitions/node"},
        "placed": {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp", "connect.type": "int64"},
        "due": {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"},
        "small": {"type": "integer", "connect.type": "int32"},
        "cents": {"type": "number", "title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes",
                  "connect.parameters": {"scale": "2"}},
    },
    "definitions": {
        "amount": {"type": "number"},
        "node": {
            "type": "object",
            "properties": {"left": {"$ref": "#/definitions/node"}, "right": {"$ref": "#/definitions/node"},
                           "v": {"type": "integer"}},
        },
    },
}  # fmt: skip
JSON_TYPES = {
    "price": "double", "at": "timestamp", "day": "date", "labels": "map<string,boolean>",
    "part": "struct<x: long, open: boolean, ratio: double, more: string>", "wild": "string",
    "lists": "array<array<double>>", "tree": "struct<left: struct<v: long, left: struct<v: long>>, v: long>",
    "free": "struct<any: long>", "never": "long", "placed": "timestamp", "due": "date", "small": "int",
    "cents": "decimal(38,2)", "extra": "long",
}  # fmt: skip


def registered(schemas: Mapping[int, object], watch: Watch, **columns: str) -> Decoder:
    known: Schemas = {i: RegisteredSchema(i, "JSON", (json.dumps(schema),)) for i, schema in schemas.items()}
    return copied(decoder_for("json", row_type({"id": "long", **columns}), registered=known, watch=watch))


def framed(schema_id: int, value: object) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + json.dumps(value).encode()


def test_json_schema_of_a_registry_says_the_types_and_values_those_that_it_leaves_open() -> None:
    value = {
        "id": 1, "price": 5, "at": "2026-01-01T00:00:00Z", "day": "2026-01-01", "labels": {"a": True},
        "part": {"x": 1, "open": True, "more": "m"}, "wild": "w", "lists": [[1]], "free": {"any": 1}, "small": 1,
        "extra": 7, "tree": {"left": {"v": 2, "left": {"v": 3}}},
    }  # fmt: skip
    raw = pa.array([framed(1, value), framed(1, {"id": 2}), framed(2, {"id": 3, "extra": 1})])
    decoded = registered({1: JSON_SCHEMA, 2: {}}, Watch()).decode(raw)
    assert {name: kind for name, (kind, _) in found(decoded).items()} == JSON_TYPES
    assert found(decoded)["price"] == ("double", 2)
    assert found(decoded)["extra"] == ("long", 2)
    refused = registered({1: JSON_SCHEMA}, Watch("refuse"), price="double").decode(raw[1:2])
    assert not refused.errors, "it has no value in any of them"


def test_json_schema_that_says_little_or_leads_to_itself_in_many_ways() -> None:
    parts = {f"f{n}": {"$ref": f"#/definitions/M{n}"} for n in range(10)}
    schema = {
        "type": "object",
        "properties": {"open": {"anyOf": [True, {"type": "string"}]}, "id": {"type": "integer"}, **parts},
        "definitions": {f"M{n}": {"type": "object", "properties": {"v": {"type": "integer"}, **parts}}
                        for n in range(10)},
    }  # fmt: skip
    decoded = registered({1: schema}, Watch()).decode(raw_values(framed(1, {"id": 1, "open": "a", "n": 1})))
    unknown = found(decoded)
    assert (decoded.errors, unknown["open"], unknown["n"]) == ({}, ("string", 1), ("long", 1))


def test_json_schemas_of_several_ids_and_columns_that_become_wider() -> None:
    schemas = {
        n: {"type": "object", "properties": {"x": {"type": kind}, "n": {"type": "integer", "connect.type": size}}}
        for n, (kind, size) in enumerate([("integer", "int32"), ("number", "int64")])
    }
    raw = pa.array([framed(0, {"id": 1, "x": 1}), framed(1, {"id": 1, "x": 2})])
    decoded = registered(schemas, Watch(widens=frozenset({("n",)})), n="int").decode(raw)
    assert found(decoded) == {"x": ("double", 2), "n": ("long", 1)}


def decimals(scale: int) -> dict[str, object]:
    one = {
        "type": "number",
        "title": "org.apache.kafka.connect.data.Decimal",
        "connect.type": "bytes",
        "connect.parameters": {"scale": str(scale)},
    }
    return {
        "type": "object",
        "properties": {
            "price": {"oneOf": [{"type": "null"}, one]},
            "all": {"type": "array", "items": one},
            "by": {"type": "object", "additionalProperties": one},
        },
    }


@pytest.mark.parametrize("many", [1, MANY])
@pytest.mark.parametrize("with_map", [False, True])
def test_decimals_of_a_json_schema_are_bytes_or_numbers(many: int, with_map: bool) -> None:
    columns = {"price": "decimal(10,2)", "all": "array<decimal(10,2)>", "by": "map<string,decimal(10,2)>"}
    if not with_map:
        del columns["by"]
    cases: list[tuple[int, object, list[Any]]] = [
        (1, {"price": "AfE=", "all": ["AfE=", None], "by": {"a": "1234"}}, ["4.97", ["4.97", None], "-26588.24"]),
        (1, {"price": "1234", "all": [1.25], "by": {"a": 1}}, ["-26588.24", ["1.25"], "1"]),
        (1, {"price": 12.5, "all": []}, ["12.50", [], None]),
        (2, {"price": "AfE="}, ["49.7", None, None]),
        (3, {"price": "1234"}, ["1234", None, None]),
    ]
    decoder = registered({1: decimals(2), 2: decimals(1), 3: {}}, Watch(), **columns)
    raw = [framed(schema, value) for schema, value, _ in cases]
    for given in ([one] for one in raw):
        assert not decoder.decode(pa.array(given * many)).errors
    decoded = decoder.decode(pa.array([*raw, framed(1, {"price": "no"}), None, framed(1, {"price": 1.255})] * many))
    values = decoded.values.to_pylist()
    for n, (_, _, (price, all_, by)) in enumerate(cases):
        assert values[n]["price"] == (price and Decimal(price))
        assert values[n]["all"] == (all_ and [one and Decimal(one) for one in all_])
        assert not with_map or values[n]["by"] == (by and [("a", Decimal(by))])
    assert {n: e.kind for n, e in decoded.errors.items() if n < 8} == {5: "type", 7: "range"}


@pytest.mark.parametrize("kind", ["debezium", "debezium_flat", "dms", "mongo"])
def test_of_an_envelope_only_the_fields_of_the_row_are_of_interest(kind: str) -> None:
    row = {"id": 1, "name": "a", "new": 2}
    envelopes: dict[str, dict[str, object]] = {
        "debezium": {"before": {**row, "old": 1}, "after": row, "op": "u", "source": {"lsn": 1}, "ts_ms": 5},
        "debezium_flat": {**row, "__op": "u", "__lsn": 1},
        "dms": {"data": row, "metadata": {"operation": "update", "record-type": "data", "more": 1}},
        "mongo": {"after": json.dumps(row), "op": "u", "source": {"lsn": 1}},
    }
    rules = EnvelopeRules(kind, {"_op": "op"})

    def decoded(columns: dict[str, str], watch: Watch) -> Decoded:
        made = Enveloped(
            row_type(columns), rules, lambda inner, inside: decoder_for("json", inner, watch=inside), watch
        )
        return copied(made).decode(raw_values(*[envelopes[kind]] * MANY))

    columns = {"id": "long", "name": "text", "_op": "string"}
    assert found(decoded(columns, Watch())) == {"new": ("long", MANY)}
    assert decoded(columns, Watch("refuse")).errors[0].message == "no column takes the field new"
    rescued = decoded({**columns, "_rescued": "string"}, RESCUE)
    assert rescued.values[0].as_py() == {"id": 1, "name": "a", "_op": "u", "_rescued": '{"new":2}'}

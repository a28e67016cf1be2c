"""Records that are read in step, against the same ones by one: the same values, errors and unknown fields."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Literal

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jobs.decode.avro import Avro
from jobs.decode.connect_json import ConnectJson
from jobs.decode.json_strict import StrictJson
from jobs.decode.parts import SMALL
from jobs.decode.protobuf import Protobuf
from jobs.decode.unknown import Watch
from jobs.schema.avro import avro_wire, plain
from jobs.schema.connect import connect_wire
from jobs.schema.protobuf import Messages, compiled, message_class, message_wire
from jobs.schema.types import parse_type
from jobs.schema.wire import natural_type
from resources.errors import ConfigurationError
from tests.kit.avro import record, text
from tests.kit.in_step import assert_same, shown

Typed = tuple[Any, st.SearchStrategy[Any]]
"""A schema, and values of it as they are written: without logical types."""

DECLARED = [
    parse_type(one)[0]
    for one in ("boolean", "int", "long", "float", "double", "decimal(5,2)", "decimal(38,9)", "string", "binary",
                "date", "timestamp", "timestamp_ntz")
]  # fmt: skip
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
SMALL_NUMBERS = st.integers(-1000, 1000)
TEXTS = st.one_of(
    st.text(max_size=5),
    st.sampled_from(["1", "-1.5", "1e2", "1.005", " 1", "1_0", "NaN", "2020-02-29", "2020-02-29Z",
                     "2020-02-29T12:00:00Z", "2020-02-29T12:00:00.1234567+01:00", "2020-02-29T12:00:00",
                     "9999-12-31T23:59:59.999999Z"]),
)  # fmt: skip


def logical(kind: str, *names: str) -> list[dict[str, Any]]:
    return [{"type": kind, "logicalType": name} for name in names]


def connect(kind: str, *names: str) -> list[dict[str, Any]]:
    return [{"type": kind, "connect.name": f"io.debezium.time.{name}"} for name in names]


def scalars() -> st.SearchStrategy[Typed]:
    """Each of a byte at least: of items without any a broken record can have any number."""

    def decimal(precision: int, scale: int) -> Typed:
        schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": min(scale, precision)}
        return schema, st.one_of(st.binary(max_size=3), st.binary(max_size=17))

    def fixed(size: int) -> Typed:
        uuid = {"logicalType": "uuid"} if size == 16 else {}
        return {"type": "fixed", "name": "F", "size": size, **uuid}, st.binary(min_size=size, max_size=size)

    def one_of(*kinds: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Typed]:
        return st.sampled_from(kinds).map(lambda kind: (kind, values))

    return st.one_of(
        one_of("boolean", values=st.booleans()),
        one_of("int", *logical("int", "date", "time-millis"), *connect("int", "Date", "Time"),
               values=st.one_of(INTS, SMALL_NUMBERS)),
        one_of("long", *logical("long", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
                                "local-timestamp-micros"),
               *connect("long", "MicroTime", "NanoTime", "NanoTimestamp", "Timestamp"),
               values=st.one_of(LONGS, SMALL_NUMBERS, INTS)),
        one_of("float", values=st.floats(width=32)),
        one_of("double", values=st.floats()),
        one_of("string", *logical("string", "uuid"), *connect("string", "ZonedTimestamp", "IsoDate", "IsoTimestamp"),
               values=TEXTS),
        one_of("bytes", values=st.binary(max_size=20)),
        st.builds(decimal, st.integers(1, 38), st.integers(0, 38)),
        st.builds(fixed, st.sampled_from([2, 16])),
        st.just(({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("AB"))),
    )  # fmt: skip


def compound(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def optional(one: Typed, first: bool) -> Typed:
        assume(not isinstance(one[0], list))
        return ["null", one[0]] if first else [one[0], "null"], st.one_of(st.none(), one[1])

    def fields(parts: list[Typed]) -> Typed:
        names = "abc"[: len(parts)]
        schema = record(*zip(names, (kind for kind, _ in parts), strict=True), name="R")
        return schema, st.fixed_dictionaries({n: values for n, (_, values) in zip(names, parts, strict=True)})

    return st.one_of(
        st.builds(optional, inner, st.booleans()),
        st.lists(inner, min_size=1, max_size=3).map(fields),
        inner.map(lambda one: ({"type": "array", "items": one[0]}, st.lists(one[1], max_size=4))),
        inner.map(lambda one: ({"type": "map", "values": one[0]}, st.dictionaries(TEXTS, one[1], max_size=3))),
    )


UNIONS: list[Typed] = [
    (["string", "int"], st.one_of(INTS, st.text(max_size=3))),
    (["null", "boolean", "double"], st.one_of(st.none(), st.booleans(), st.floats())),
    (["int", "long"], LONGS),
    (["null", record(("x", "int"), name="P"), record(("x", "int"), name="Q")],
     st.tuples(st.sampled_from("PQ"), st.fixed_dictionaries({"x": INTS}))),
    (["null", "string", record(("x", ["null", "int"]), name="S"), {"type": "array", "items": "int"}],
     st.one_of(st.none(), st.text(max_size=2), st.fixed_dictionaries({"x": st.none()}), st.lists(INTS, max_size=2))),
]  # fmt: skip


@st.composite
def columns(
    draw: st.DrawFn, natural: bool = False
) -> tuple[dict[str, Any], list[bytes], list[bytes | None], pa.StructType]:
    """A schema of one record, records of it, good and broken, and the columns that are declared.

    Args:
        natural: these are of the types that the schema has.
    """
    numbers, any_type = count(), st.recursive(scalars(), compound, max_leaves=6)
    drawn = [(named(kind, numbers), values) for kind, values in draw(st.lists(any_type, min_size=1, max_size=4))]
    typed = [*drawn, *draw(st.lists(st.sampled_from(UNIONS), max_size=1))]
    names = [f"c{n}" for n in range(len(typed))]
    schema = record(*zip(names, (kind for kind, _ in typed), strict=True))
    fields = [pa.field("none", pa.int64())] if draw(st.booleans()) else []
    for name in names:
        wire = avro_wire((text(schema),)).field(name)
        assert wire is not None
        choices: list[pa.DataType] = [*DECLARED] if not natural and draw(st.booleans()) else []
        try:
            choices = choices or [natural_type(wire)]
        except ConfigurationError:
            continue
        field = pa.field(name, draw(st.sampled_from(choices)), nullable=draw(st.integers(0, 3)) > 0)
        try:
            Avro(pa.struct([field]), text(schema))
        except ConfigurationError:
            continue
        fields.append(field)
    parsed = fastavro.parse_schema(plain(schema, defaults=False))
    values = st.fixed_dictionaries({name: values for name, (_, values) in zip(names, typed, strict=True)})
    good = [written(parsed, value) for value in draw(st.lists(values, min_size=1, max_size=4))]
    return schema, good, draw(st.lists(changed(good), max_size=4)), pa.struct(fields)


def named(schema: Any, numbers: Iterator[int]) -> Any:
    """The schema with a name of its own for each type."""
    if isinstance(schema, list):
        return [named(branch, numbers) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {key: named(schema[key], numbers) for key in ("type", "items", "values", "fields") if key in schema}
    own = (
        {"name": f"{schema['name']}{next(numbers)}"}
        if "symbols" in schema or "fields" in schema or "size" in schema
        else {}
    )
    return {**schema, **parts, **own}


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def changed(records: list[bytes]) -> st.SearchStrategy[bytes | None]:
    """A record with bytes that were left out, put in, or changed."""

    def change(record: bytes, at: int, out: int, other: bytes) -> bytes:
        at = at % (len(record) + 1)
        return record[:at] + other + record[at + out :]

    places = st.integers(0, 1000)
    some = st.one_of(
        st.binary(max_size=3), st.sampled_from([b"\xff", b"\x80", b"\x00", b"\x01", b"\xff" * 9 + b"\x01"])
    )
    return st.one_of(st.none(), st.builds(change, st.sampled_from(records), places, st.integers(0, 3), some))


@given(columns(), st.sampled_from([None, "report", "refuse", "rescue"]))
@settings(max_examples=50, deadline=None)
def test_avro(
    drawn: tuple[dict[str, Any], list[bytes], list[bytes | None], pa.StructType],
    then: Literal["report", "refuse", "rescue"] | None,
) -> None:
    schema, good, broken, kind = drawn
    watch = Watch(then, "rest" if then == "rescue" else "") if then else None
    rest = [pa.field("rest", pa.string())] if then == "rescue" else []
    assert_same(Avro(pa.struct([*kind, *rest]), text(schema), watch), [*good, *broken])


@given(columns(natural=True))
@settings(max_examples=50, deadline=None)
def test_avro_of_its_own_types_is_all_read_in_step(
    drawn: tuple[dict[str, Any], list[bytes], list[bytes | None], pa.StructType],
) -> None:
    schema, good, _, kind = drawn
    decoder = Avro(kind, text(schema))
    fitting = [one for one in good if not decoder.decode_each(pa.array([one])).errors]
    assert assert_same(decoder, fitting) == len(fitting)


def test_times_with_digits_after_microseconds_are_read_in_step() -> None:
    """As Java, Go and SQL Server write them."""
    schema = record(("t", "string"))
    times = ["2020-02-29T12:00:00.1234567+01:00", "2020-02-29T12:00:00.123456789Z", "2020-02-29T12:00:00.5Z"]
    records = [written(schema, {"t": time}) for time in times]
    decoder = Avro(pa.struct([pa.field("t", pa.timestamp("us", "UTC"))]), text(schema))
    assert assert_same(decoder, records) == len(times)
    found = decoder.decode(pa.array(records)).values.field("t").cast(pa.string()).to_pylist()
    assert found == ["2020-02-29 11:00:00.123456Z", "2020-02-29 12:00:00.123456Z", "2020-02-29 12:00:00.500000Z"]


@pytest.mark.parametrize(
    "column", ["decimal(5,2)", "decimal(38,0)", "decimal(38,18)", "decimal(38,20)", "decimal(38,38)"]
)
@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ("string", ["120", "1100000000000000000000", "9999999699" + "9" * 29, "0.7" + "0" * 37 + "1", "1.500", "5."]),
        ("string", ["1e-77", "1e-4009", "1e-99999999", "1e2"]),
        ("long", [120, 3_500_000_000_000_000_000, -(2**63)]),
        (logical("bytes", "decimal")[0] | {"precision": 38, "scale": 0}, [(11 * 10**20).to_bytes(9, "big"), b"\x78"]),
    ],
)  # fmt: skip
def test_decimals_that_wrap_around_in_arrow(schema: Any, values: list[Any], column: str) -> None:
    """Where Arrow multiplies to the scale of a column; at a large exponent it ends the process."""
    of_one = record(("c", schema))
    parsed = fastavro.parse_schema(plain(of_one, defaults=False))
    decoder = Avro(pa.struct([pa.field("c", parse_type(column)[0])]), text(of_one))
    for value in values:
        assert_same(decoder, [written(parsed, {"c": value})])


PROTO3 = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message All {
  enum E { ZERO = 0; ONE = 1; LESS = -1; }
  message Inner { sint32 a = 1; optional string b = 2; repeated Inner2 c = 3; google.protobuf.Timestamp t = 4; }
  message Inner2 { repeated uint32 n = 1; }
  int32 i = 1; sint32 si = 2; uint32 ui = 3; fixed32 fi = 4; sfixed32 sfi = 5;
  int64 l = 6; sint64 sl = 7; uint64 ul = 8; fixed64 fl = 9; sfixed64 sfl = 10;
  float f = 11; double d = 12; bool b = 13; string s = 14; bytes x = 15; E e = 16;
  optional int32 oi = 17; optional bool ob = 18; optional E oe = 19; optional double od = 20; optional bytes ox = 21;
  oneof way { string mail = 22; int32 code = 23; Inner other = 24; }
  repeated sint64 many = 25; repeated string texts = 26; repeated bool flags = 27 [packed = false]; repeated E es = 28;
  repeated Inner inners = 29; Inner inner = 30; map<string, int64> counts = 31; map<int32, Inner> by = 32;
  google.protobuf.Timestamp at = 33; google.protobuf.StringValue ws = 34; google.protobuf.Int64Value wi = 35;
  map<bool, google.protobuf.Timestamp> times = 36; repeated double doubles = 100; string last = 2000;
}
"""
PROTO2 = """syntax = "proto2"; message Old {
  enum E { A = 1; B = 2; }
  required int32 i = 1; optional string s = 2 [default = "x"]; optional E e = 3 [default = B]; repeated int32 many = 4;
  optional bytes x = 5; map<string, string> tags = 6; repeated E es = 7; optional Old2 inner = 8; extensions 100 to 200;
}
message Old2 { optional int32 n = 1; }
"""
NEW, OLD = compiled((PROTO3,), ("",)), compiled((PROTO2,), ("",))
NUMBERS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: st.one_of(SMALL_NUMBERS, INTS),
    FieldDescriptor.CPPTYPE_INT64: st.one_of(SMALL_NUMBERS, LONGS),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
}


@st.composite
def messages(draw: st.DrawFn, kind: Descriptor, required: bool = True) -> Any:
    """A message with some of its fields."""
    message = message_class(kind)()
    wanted = draw(st.lists(st.sampled_from(list(kind.fields)), unique=True, max_size=5))
    for field in wanted:
        fill(draw, message, field)
    for field in kind.fields:
        if field.is_required and required:
            fill(draw, message, field)
    return message


def fill(draw: st.DrawFn, message: Any, field: FieldDescriptor) -> None:
    one, held = value_of(field), getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        for key in draw(st.lists(value_of(field.message_type.fields_by_name["key"]), max_size=3)):
            if value.message_type is None:
                held[key] = draw(value_of(value))
            else:
                held[key].CopyFrom(draw(value_of(value)))
    elif field.is_repeated:
        held.extend(draw(st.lists(one, max_size=4)))
    elif field.message_type is not None:
        held.CopyFrom(draw(one))
    else:
        setattr(message, field.name, draw(one))


def value_of(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return messages(field.message_type)
    if field.enum_type is not None:
        return st.sampled_from(sorted(field.enum_type.values_by_number))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return st.binary(max_size=4) if field.type == FieldDescriptor.TYPE_BYTES else TEXTS
    return NUMBERS[field.cpp_type]


@given(st.data(), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=50, deadline=None)
def test_protobuf(data: st.DataObject, new: bool, whole: bool, reports: bool) -> None:
    descriptors, name = (NEW, "All") if new else (OLD, "Old")
    kind = Messages(descriptors).named(name)
    declared = natural_type(message_wire(kind))
    assert isinstance(declared, pa.StructType)
    every_field = Protobuf(declared, descriptors, name)
    if not whole:
        declared = pa.struct(data.draw(st.lists(st.sampled_from(list(declared)), unique=True, min_size=1)))
    good = [one.SerializePartialToString() for one in data.draw(st.lists(messages(kind), min_size=1, max_size=4))]
    broken = data.draw(st.lists(changed([*good, b"".join(good), b"".join(reversed(good))]), max_size=4))
    decoder = Protobuf(declared, descriptors, name, Watch("report") if reports else None)
    # An instant outside of the years 1 to 9999 fits no column, and is not read in step where nothing takes it either.
    fitting = [one for one in good if not every_field.decode_each(pa.array([one])).errors]
    assert assert_same(decoder, fitting) == len(fitting)
    assert_same(decoder, [*good, *broken])


def connect_field(kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, **({"name": name} if name else {}), **more}


CONNECT = [
    *(connect_field(kind) for kind in ("boolean", "int32", "int64", "float", "double", "string", "bytes")),
    *(connect_field("int64", f"io.debezium.time.{name}") for name in ("MicroTime", "NanoTimestamp", "Timestamp")),
    connect_field("int32", "io.debezium.time.Date"),
    *(connect_field("string", f"io.debezium.time.{name}") for name in ("ZonedTimestamp", "IsoDate", "IsoTimestamp")),
    connect_field("bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}),
    connect_field("array", items=connect_field("int64")),
    connect_field("map", keys=connect_field("string"), values=connect_field("double")),
]
NASTY = (Path(__file__).parent / "nasty_values.txt").read_text("utf-8").splitlines()
JSON_VALUES = st.one_of(
    st.sampled_from([*NASTY, "-0", "-0.0", '"AA=="', '"AQI="', "[1,null]", '{"a":1}', '{"a":1,"a":"x"}', "1.25"]),
    st.one_of(st.integers(), INTS, st.floats(), st.booleans(), TEXTS, st.none()).map(json.dumps),
)


@st.composite
def payloads(draw: st.DrawFn) -> tuple[pa.StructType, list[bytes | None]]:
    """Declared columns, and records of one schema or two."""
    names = "abcd"
    plain = [connect_field("int64"), connect_field("string")]
    inner = {
        "type": "struct",
        "optional": True,
        "fields": [{**one, "field": n} for one, n in zip(plain, "xy", strict=True)],
    }
    kinds = st.one_of(st.sampled_from([*plain, *CONNECT, inner]))
    schemas = [
        {"type": "struct", "fields": [{**draw(kinds), "field": name} for name in names]}
        for _ in range(draw(st.integers(1, 2)))
    ]
    natural = natural_type(connect_wire(schemas[0]))
    fields = [pa.field(f.name, f.type, nullable=draw(st.integers(0, 3)) > 0) for f in natural]
    fields = fields[draw(st.integers(0, 2)) :]
    records: list[bytes | None] = []
    for _ in range(draw(st.integers(1, 5))):
        schema = draw(st.sampled_from(schemas))
        found = draw(st.dictionaries(st.sampled_from([*names, "other"]), JSON_VALUES, max_size=4))
        body = ",".join(f'"{name}":{value}' for name, value in found.items())
        payload = draw(
            st.sampled_from([f"{{{body}}}"] * 8 + ["null", "1", f" {{{body}}} ", f"[{{{body}}}]", f"{{{body}"])
        )
        space = draw(st.sampled_from(["", "", " ", "\n\t"]))
        members = [f'"schema"{space}:{space}{json.dumps(schema)}', f'"payload"{space}:{space}{payload}']
        records.append(f"{{{space}{f'{space},{space}'.join(members)}{space}}}".encode())
    return pa.struct(fields), records


@given(payloads(), st.booleans())
@settings(max_examples=50, deadline=None)
def test_connect_json(given_payloads: tuple[pa.StructType, list[bytes | None]], reports: bool) -> None:
    kind, records = given_payloads
    assert_same(ConnectJson(kind, Watch("report") if reports else None), records, times=SMALL + 1)


def test_connect_json_that_others_write_is_read_in_step() -> None:
    """By libraries that put spaces between its parts."""
    schema = {"type": "struct", "fields": [{**connect_field("int64"), "field": "id"}]}
    records = [json.dumps({"schema": schema, "payload": {"id": n}}).encode() for n in range(3)]
    assert assert_same(ConnectJson(pa.struct([("id", pa.int64())])), records) == 3


@pytest.mark.parametrize("schema", CONNECT, ids=lambda schema: f"{schema['type']} {schema.get('name', '')}")
def test_each_type_of_connect_with_each_json_value(schema: dict[str, Any]) -> None:
    whole = {"type": "struct", "fields": [{**schema, "field": "c"}]}
    kind = natural_type(connect_wire(whole))
    values = [*NASTY, "-0", "-0.0", "0", "7", "1.25", '"AA=="', '"AQI="', "[1,null]", "[]", '{"a":1}', "true"]
    records = [f'{{"schema":{json.dumps(whole)},"payload":{{"c":{value}}}}}'.encode() for value in values]
    assert_same(ConnectJson(kind), records, times=2)
    for one in records:
        assert_same(ConnectJson(kind), [one])


@pytest.mark.parametrize("column", ["int", "long", "float", "double"])
@pytest.mark.parametrize("schema", ["int32", "int64"])
def test_numbers_beside_a_schema_are_refused_as_those_without(schema: str, column: str) -> None:
    assert_as_without_schema(schema, column)


@pytest.mark.parametrize("column", ["float", "double"])
def test_doubles_beside_a_schema_are_refused_as_those_without(column: str) -> None:
    assert_as_without_schema("double", column)


def assert_as_without_schema(schema: str, column: str) -> None:
    whole = json.dumps({"type": "struct", "fields": [{**connect_field(schema), "field": "c"}]}).encode()
    kind = parse_type(f"struct<c: {column}>")[0]
    values = [*NASTY, "-0.0", "7", "1.25", "1.0", "1e3", "16777217", "1e39", "1e400", "true", f"1{'0' * 400}"]
    bare = [f'{{"c":{value}}}'.encode() for value in values if value != "-0"]  # a whole number has no sign then
    broken = StrictJson(kind).decode(pa.array(bare)).errors
    bare = [one for row, one in enumerate(bare) if row not in broken or broken[row].kind != "undecodable"]
    beside = ConnectJson(kind).decode_each(pa.array([b'{"schema":%s,"payload":%s}' % (whole, one) for one in bare]))
    without = StrictJson(kind).decode(pa.array(bare))
    assert (beside.errors, shown(beside.values)) == (without.errors, shown(without.values))

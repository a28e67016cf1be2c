"""Avro: every type, extreme values, writers' schemas by id, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from jobs.decode.avro import Avro, RegisteredAvro
from jobs.decode.base import DecodeError
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.parts import SMALL
from jobs.decode.registered import RegisteredSchema
from jobs.decode.unknown import Watch
from jobs.schema.avro import avro_wire
from jobs.schema.types import parse_columns, parse_type, type_name
from jobs.schema.wire import natural_type
from resources.errors import ConfigurationError
from tests.kit.arrow import copied, raw_values, row_type
from tests.kit.avro import encoded, record, text
from tests.kit.in_step import assert_same


def logical(kind: str, is_a: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": is_a, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
UUID_TEXT = "00112233-4455-6677-8899-aabbccddeeff"
BIG = 10**38 - 1

# schema, its own column type, value as Python's, value as decoded (None: the same)
TYPES: list[tuple[Any, str, Any, Any]] = [
    ("boolean", "boolean", True, None),
    ("int", "int", -(2**31), None),
    ("long", "long", 2**63 - 1, None),
    ("float", "float", float("-inf"), None),
    ("double", "double", 5e-324, None),
    ("string", "string", "\x00 \U0001f980", None),
    ("bytes", "binary", b"\xff\x00", None),
    (["null", "long"], "long", None, None),
    (["string", "null"], "string", "a", None),
    (ENUM, "string", "B", None),
    (FIXED, "binary", b"ab", None),
    (decimal(38, 0), "decimal(38,0)", Decimal(-BIG), None),
    (decimal(38, 38), "decimal(38,38)", Decimal((1, (9,) * 38, -38)), None),
    (decimal(4, 2), "decimal(4,2)", Decimal("0.01"), None),
    (logical("fixed", "decimal", name="D", size=16, precision=38, scale=3), "decimal(38,3)", Decimal("-1.125"), None),
    (logical("int", "date"), "date", date(9999, 12, 31), None),
    (logical("int", "date"), "date", date(1, 1, 1), None),
    (logical("int", "time-millis"), "string", 86_399_999, "23:59:59.999000"),
    (logical("long", "time-micros"), "string", 1, "00:00:00.000001"),
    (logical("long", "timestamp-millis"), "timestamp", -1, datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
    (logical("long", "timestamp-micros"), "timestamp", 253_402_300_799_999_999, datetime.max.replace(tzinfo=UTC)),
    (logical("long", "timestamp-micros"), "timestamp", -62_135_596_800_000_000, datetime.min.replace(tzinfo=UTC)),
    (logical("long", "timestamp-nanos"), "timestamp", -1, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    (logical("long", "local-timestamp-millis"), "timestamp_ntz", 1, datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (logical("long", "local-timestamp-micros"), "timestamp_ntz", 1, datetime(1970, 1, 1, 0, 0, 0, 1)),
    (logical("string", "uuid"), "string", UUID(UUID_TEXT), UUID_TEXT),
    (logical("fixed", "uuid", name="U", size=16), "string", UUID(UUID_TEXT).bytes, UUID_TEXT),
    ({"type": "array", "items": "int"}, "array<int not null>", [1, 2], None),
    ({"type": "array", "items": ["null", logical("int", "date")]}, "array<date>", [None, date(2020, 2, 29)], None),
    ({"type": "map", "values": "long"}, "map<string,long not null>", {"a": 1}, [("a", 1)]),
    (record(("a", "int"), ("b", ["null", decimal(3, 1)]), name="I"), "struct<a: int not null, b: decimal(3,1)>",
     {"a": 1, "b": Decimal("1.5")}, None),
    (["int", "long"], "long", 7, None),
    (["float", "double", "null"], "double", 1.5, None),
    ({"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "2"}},
     "decimal(38,2)", b"\xff", Decimal("-0.01")),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, "timestamp_ntz", 1,
     datetime(1970, 1, 1, 0, 0, 0, 1)),
]  # fmt: skip


def one(kind: Any, column: str, raw: bytes, nullable: bool = True) -> Any:
    declared, _ = parse_type(column)
    decoder = Avro(pa.struct([pa.field("c", declared, nullable=nullable)]), text(record(("c", kind))))
    assert_same(decoder, [raw])
    return copied(decoder).decode(raw_values(raw))


def column_type(schema: dict[str, Any]) -> str:
    wire = avro_wire((text(schema),)).field("c")
    assert wire is not None
    return type_name(natural_type(wire))


@pytest.mark.parametrize(("kind", "column", "value", "wanted"), TYPES)
def test_every_type(kind: Any, column: str, value: Any, wanted: Any) -> None:
    schema = record(("c", kind))
    assert column_type(schema) == column
    decoded = one(kind, column, encoded(schema, {"c": value}))
    assert decoded.errors == {}
    assert decoded.values.to_pylist() == [{"c": value if wanted is None else wanted}]


@pytest.mark.parametrize(
    ("kind", "column", "value", "wanted"),
    [
        ("string", "long", "-7", -7),
        ("string", "long", "7.5", DecodeError("type", "column c: expected long, found a number with a fraction")),
        (
            "string",
            "int",
            "3000000000",
            DecodeError("range", "column c: expected int, found a number that does not fit"),
        ),
        ("string", "double", "x", DecodeError("type", "column c: expected double, found a string")),
        ("string", "boolean", "TRUE", True),
        ("string", "timestamp", "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("string", "timestamp_ntz", "2024-02-29T10:00:00", datetime(2024, 2, 29, 10)),
        ("int", "boolean", 1, True),
        ("long", "boolean", 2, DecodeError("type", "column c: expected boolean, found a number")),
        ("long", "string", 7, "7"),
        ("boolean", "string", True, "true"),
        (record(("x", "int"), name="I"), "string", {"x": 1}, '{"x":1}'),
        (logical("long", "timestamp-millis"), "string", 1500, "1970-01-01T00:00:01.500000Z"),
        (logical("long", "local-timestamp-micros"), "string", 1, "1970-01-01T00:00:00.000001"),
        (logical("int", "date"), "string", date(2024, 2, 29), "2024-02-29"),
        (logical("int", "time-millis"), "string", 3_600_000, "01:00:00"),
        ("bytes", "string", b"ab", "YWI="),
        ({"type": "fixed", "name": "F", "size": 2}, "string", b"ab", "YWI="),
        (["null", "bytes"], "string", None, None),
        (["long", "bytes"], "string", b"ab", "YWI="),
        ({"type": "array", "items": logical("int", "date")}, "string", [date(2024, 2, 29)], '["2024-02-29"]'),
        ({"type": "array", "items": "bytes"}, "array<string>", [b"ab"], ["YWI="]),
        ({"type": "array", "items": "string"}, "array<long>", ["1", "2"], [1, 2]),
    ],
)
def test_best_fit(kind: Any, column: str, value: Any, wanted: Any) -> None:
    schema = record(("c", kind))
    declared = JsonDialect(best_fit=True).of_row(pa.struct([pa.field("c", parse_type(column)[0])]))
    decoder = Avro(declared, text(schema))
    raw = encoded(schema, {"c": value})
    assert_same(decoder, [raw])
    decoded = copied(decoder).decode(raw_values(raw))
    found = decoded.errors.get(0) or decoded.values.to_pylist()[0]["c"]
    assert found == wanted


def test_marks_of_columns_decide_in_one_process_too() -> None:
    """Arrow compares types without the marks on their fields."""
    schema, found = record(("c", "bytes")), []
    for column, fits in (("text", False), ("string", True), ("text", True)):
        kind = pa.struct(list(parse_columns({"c": column})))
        decoder = Avro(JsonDialect(best_fit=True).of_row(kind) if fits else kind, text(schema))
        found += decoder.decode(raw_values(encoded(schema, {"c": b"ab"}))).values.to_pylist()
    assert [row["c"] for row in found] == ['"YWI="', "YWI=", '"YWI="']


POINT, ERROR = record(("x", "int"), name="n.s.Point"), record(("x", "int"), name="n.s.Error")
BRANCHES = "struct<string: string, Point: struct<x: int not null>, Error: struct<x: int not null>, E: string>"
NOTHING = dict.fromkeys(("string", "Point", "Error", "E"))


@pytest.mark.parametrize(
    ("kind", "column", "value", "wanted"),
    [
        (["int", "string"], "struct<int: int, string: string>", 5, {"int": 5, "string": None}),
        (["int", "string"], "struct<int: int, string: string>", "a", {"int": None, "string": "a"}),
        (["null", "int", "string"], "struct<int: int, string: string>", None, None),
        (["boolean", {"type": "array", "items": "long"}], "struct<boolean: boolean, array: array<long not null>>",
         [1], {"boolean": None, "array": [1]}),
        (["string", logical("long", "timestamp-millis")], "struct<string: string, long: timestamp>", 1,
         {"string": None, "long": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)}),
        (["null", "string", POINT, ERROR, ENUM], BRANCHES, "a", {**NOTHING, "string": "a"}),
        (["null", "string", POINT, ERROR, ENUM], BRANCHES, ("n.s.Error", {"x": 1}), {**NOTHING, "Error": {"x": 1}}),
        (["null", "string", POINT, ERROR, ENUM], BRANCHES, ("n.s.Point", {"x": 2}), {**NOTHING, "Point": {"x": 2}}),
        (["null", "string", POINT, ERROR, ENUM], BRANCHES, ("E", "B"), {**NOTHING, "E": "B"}),
    ],
)  # fmt: skip
def test_unions_of_unlike_types_as_connect_has_them(kind: Any, column: str, value: Any, wanted: Any) -> None:
    schema = record(("c", kind))
    assert column_type(schema) == column
    decoded = one(kind, column, encoded(schema, {"c": value}))
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"c": wanted}])


def test_a_branch_in_a_column_of_text_takes_any_value() -> None:
    kind, column = ["null", record(name="Begun"), POINT], "struct<Begun: text, Point: struct<x: int>>"
    raws = [encoded(record(("c", kind)), {"c": value}) for value in (("Begun", {}), ("n.s.Point", {"x": 2}), None)]
    decoded = Avro(pa.struct(list(parse_columns({"c": column}))), text(record(("c", kind)))).decode(raw_values(*raws))
    assert [row["c"] for row in decoded.values.to_pylist()] == [
        {"Begun": "{}", "Point": None}, {"Begun": None, "Point": {"x": 2}}, None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (["string", logical("long", "timestamp-millis")], 1000, "1970-01-01T00:00:01Z"),
        (["string", logical("long", "timestamp-millis")], "a", "a"),
        ({"type": "array", "items": ["null", "string", logical("long", "timestamp-millis")]}, [None, 1000],
         '[null,"1970-01-01T00:00:01Z"]'),
        (["null", "boolean", decimal(4, 2)], b"\x01\x00", "2.56"),
        (["string", record(("t", logical("int", "date")), name="D"), POINT], ("D", {"t": 1}),
         '["D",{"t":"1970-01-02"}]'),
        # Nobody knows which of them a number is.
        (["boolean", logical("int", "date"), logical("long", "timestamp-millis")], 1, "1"),
    ],
)  # fmt: skip
def test_branches_in_a_column_of_text_show_what_they_mean(kind: Any, value: Any, wanted: str) -> None:
    schema, raws = text(record(("c", kind))), raw_values(encoded(record(("c", kind)), {"c": value}))
    assert Avro(row_type({"c": "text"}), schema).decode(raws).values.to_pylist() == [{"c": wanted}]
    rescuing = Avro(row_type({"d": "int", "rest": "string"}), schema, Watch("rescue", "rest"))
    rescued = rescuing.decode(raws).values[0].as_py()["rest"]
    assert rescued in (f'{{"c":{wanted}}}', f'{{"c":"{wanted}"}}')


def test_parts_of_a_union() -> None:
    kind = ["string", POINT, ERROR]
    raw = encoded(record(("c", kind)), {"c": ("n.s.Point", {"x": 2})})
    assert one(kind, "struct<Error: struct<x: long>>", raw).values.to_pylist() == [{"c": {"Error": None}}]
    # Both records fit one struct, so that is allowed too.
    raw = encoded(record(("c", [POINT, ERROR])), {"c": ("n.s.Error", {"x": 3})})
    assert one([POINT, ERROR], "struct<x: long>", raw).values.to_pylist() == [{"c": {"x": 3}}]


@pytest.mark.parametrize("column", ["Point", "Error"])
def test_a_branch_of_records_that_are_a_union(column: str) -> None:
    union: Any = [POINT, record(("y", "string"), name="n.s.Error")]
    raws = [encoded(union, ("n.s.Point", {"x": 2})), encoded(union, ("n.s.Error", {"y": "a"}))]
    inner = {"Point": pa.field("x", pa.int64()), "Error": pa.field("y", pa.string())}[column]
    decoder = Avro(pa.struct([(column, pa.struct([inner]))]), text(union))
    assert_same(decoder, raws)
    assert [value[column] for value in decoder.decode(raw_values(*raws)).values.to_pylist()] == [
        {"x": 2} if column == "Point" else None, {"y": "a"} if column == "Error" else None
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [["string", ENUM], ["bytes", FIXED], ["int", "string", "long"]])
def test_unions_whose_branches_look_alike_are_refused(kind: Any) -> None:
    column = column_type(record(("c", [*kind, "boolean"])))
    with pytest.raises(ConfigurationError, match="cannot be distinguished"):
        one([*kind, "boolean"], column, b"")


def fixed(name: str) -> dict[str, Any]:
    return logical("fixed", "decimal", name=name, size=2, precision=4, scale=2)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ([fixed("D"), decimal(4, 3)], "decimal(10,4)"),
        (
            [fixed("a.D"), {**fixed("b.D"), "scale": 3}],
            "decimal(10,4)",
        ),
        (["int", logical("long", "timestamp-micros")], "timestamp"),
        ([logical("int", "time-millis"), logical("long", "time-micros")], "string"),
    ],
)
def test_branches_that_look_alike_and_mean_something_else_are_refused(kind: Any, column: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be distinguished"):
        one(kind, column, b"")


@pytest.mark.parametrize(
    ("kind", "column", "value", "wanted"),
    [
        (["double", "float"], "float", 1e300, "range"),
        (["long", "int"], "int", 2**31, "range"),
        (["long", "int"], "int", 5, 5),
        (["null", {**ENUM, "name": "a.E"}, {**ENUM, "name": "b.E"}], "string", ("a.E", "B"), "B"),
        (["string", ENUM], "string", "B", "B"),
    ],
)
def test_branches_that_look_alike_and_mean_the_same(kind: Any, column: str, value: Any, wanted: Any) -> None:
    decoded = one(kind, column, encoded(record(("c", kind)), {"c": value}))
    found = decoded.errors[0].kind if decoded.errors else decoded.values[0].as_py()["c"]
    assert found == wanted


def test_a_branch_that_contains_its_own_record_can_be_left_out() -> None:
    node = record(("c", ["null", "int", "R"]))
    decoder = Avro(pa.struct(list(parse_columns({"c": "struct<int: int>"}))), text(node))
    raws = [encoded(node, {"c": {"c": 5}}), encoded(node, {"c": 7})]
    decoded = decoder.decode(raw_values(*raws))
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"c": {"int": None}}, {"c": {"int": 7}}])


# writer's type, declared type, value, what comes out or the kind of error
CONVERSIONS: list[tuple[Any, str, Any, Any]] = [
    ("int", "long", 1, 1),
    ("long", "int", 2**31 - 1, 2**31 - 1),
    ("long", "int", 2**31, "range"),
    ("int", "double", 3, 3.0),
    ("long", "decimal(3,0)", 999, Decimal(999)),
    ("long", "decimal(3,0)", 1000, "range"),
    ("double", "float", 0.5, 0.5),
    ("double", "float", 1e300, "range"),
    ("double", "decimal(3,1)", 0.1, Decimal("0.1")),
    ("double", "decimal(3,1)", float("nan"), "range"),
    ("string", "decimal(3,1)", "10.10", Decimal("10.1")),
    ("string", "decimal(3,1)", "ten", "type"),
    ("string", "decimal(3,1)", "1_0", "type"),
    (decimal(5, 3), "decimal(4,2)", Decimal("1.230"), Decimal("1.23")),
    (decimal(5, 3), "decimal(4,2)", Decimal("1.234"), "range"),
    (decimal(38, 30), "string", Decimal((0, (1,), -30)), "0.000000000000000000000000000001"),
    ("string", "timestamp", "2020-01-01T00:00:00+01:00", datetime(2019, 12, 31, 23, tzinfo=UTC)),
    ("string", "timestamp", "soon", "type"),
    ("string", "date", "2020-02-29", date(2020, 2, 29)),
    ("string", "date", "2019-02-29", "type"),
    (logical("int", "date"), "int", date(1970, 1, 2), 1),
    ("int", "date", 2_932_897, "range"),
    ("long", "timestamp", 1500, datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)),
    (logical("long", "timestamp-micros"), "timestamp", 2**62, "range"),
    (logical("long", "timestamp-millis"), "timestamp_ntz", 1, datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (logical("int", "time-millis"), "int", 5, 5),
    (logical("long", "time-micros"), "string", 839 * 3_600_000_000, "range"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "column", "value", "wanted"), CONVERSIONS)
def test_conversion_to_another_declared_type(kind: Any, column: str, value: Any, wanted: Any) -> None:
    decoded = one(kind, column, encoded(record(("c", kind)), {"c": value}))
    if isinstance(wanted, str) and wanted in ("range", "type"):
        assert decoded.errors[0].kind == wanted
        assert decoded.errors[0].message.startswith("column c: expected ")
        assert decoded.values.to_pylist() == [None]
    else:
        assert decoded.errors == {}
        assert decoded.values.to_pylist() == [{"c": wanted}]


@pytest.mark.parametrize(
    ("kind", "column"),
    [("string", "long"), ("int", "string"), ("bytes", "string"), (decimal(3, 1), "double"), ("int", "array<int>"),
     (["int", "string"], "long"), ({"type": "array", "items": "int"}, "map<string,int>"), ("boolean", "int")],
)  # fmt: skip
def test_types_that_do_not_go_together_are_refused_when_the_file_is_loaded(kind: Any, column: str) -> None:
    with pytest.raises(ConfigurationError, match=r"column c: expected .* schema has ") as refused:
        one(kind, column, b"")
    assert refused.value.remedy


@pytest.mark.parametrize("kind", [["int", decimal(39, 0)], decimal(39, 0), {"type": "array", "items": "R"}])
def test_types_without_a_column_type(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="declare the columns"):
        natural_type(avro_wire((text(record(("c", kind))),)))


def test_record_in_itself_can_be_left_out() -> None:
    schema = record(("id", "int"), ("next", ["null", "R"]))
    decoder = Avro(pa.struct([("id", pa.int32())]), text(schema))
    raw = encoded(schema, {"id": 1, "next": {"id": 2, "next": None}})
    assert decoder.decode(pa.array([raw])).values.to_pylist() == [{"id": 1}]


_UNLIMITED = record(("scale", "int"), ("value", "bytes"), name="io.debezium.data.VariableScaleDecimal") | {
    "connect.name": "io.debezium.data.VariableScaleDecimal"
}
_COLOUR = {"type": "enum", "name": "Colour", "symbols": ["red"], "connect.name": "io.debezium.data.Enum"}


@pytest.mark.parametrize(
    ("kind", "value", "column", "wanted"),
    [
        (_UNLIMITED, {"scale": 2, "value": b"\x01\x00"}, "decimal(38,2)", Decimal("2.56")),
        (_COLOUR, "red", "string", "red"),
        (FIXED, b"ab", "binary", b"ab"),
    ],
)
def test_a_type_means_the_same_where_it_is_used_by_its_name(kind: Any, value: Any, column: str, wanted: Any) -> None:
    schema = record(("a", kind), ("b", ["null", kind["name"]]), ("c", kind["name"]))
    raw = encoded(schema, dict.fromkeys("abc", value))
    decoder = Avro(pa.struct([(name, parse_type(column)[0]) for name in "abc"]), text(schema))
    decoded = decoder.decode(pa.array([raw] * (SMALL + 1)))
    assert (decoded.errors, decoded.values[0].as_py()) == ({}, dict.fromkeys("abc", wanted))


def test_broken_records_are_reported_one_by_one() -> None:
    schema = record(("c", "string"))
    good = encoded(schema, {"c": "a"})
    raws = [good, b"", good + b"x", b"\x02\xff", None, good, b"\xff" * 20]
    decoder = Avro(pa.struct([("c", pa.string())]), text(schema))
    assert assert_same(decoder, raws) == 3
    decoded = decoder.decode(raw_values(*raws))
    assert decoded.values.to_pylist() == [{"c": "a"}, None, None, None, None, {"c": "a"}, None]
    assert {row: error.kind for row, error in decoded.errors.items()} == dict.fromkeys([1, 2, 3, 6], "undecodable")


def test_missing_and_not_null() -> None:
    schema = record(("c", ["null", "long"]))
    raw = encoded(schema, {"c": None})
    assert one(["null", "long"], "long", raw, nullable=False).errors == {
        0: DecodeError("missing", "column c: expected long not null, found null")
    }
    both = pa.struct([pa.field("c", pa.int64()), pa.field("d", pa.int64(), nullable=False)])
    assert Avro(both, text(schema)).decode(pa.array([raw])).errors[0].message.endswith("found nothing")


V1 = record(("id", "int"), ("old", "string"))
V2 = record(("id", "long"), ("name", ["null", "string"]))


def registered(*schemas: RegisteredSchema, reader: str | None = None, columns: str = "id: long not null, name: string"):  # type: ignore[no-untyped-def]
    declared, _ = parse_type(f"struct<{columns}>")
    decoder = RegisteredAvro(declared, {s.id: s for s in schemas}, reader)
    return copied(decoder)


def test_several_schema_ids_in_one_batch() -> None:
    decoder = registered(RegisteredSchema(1, "AVRO", (text(V1),)), RegisteredSchema(2, "AVRO", (text(V2),)))
    raws = [
        encoded(V1, {"id": 1, "old": "x"}, 1),
        encoded(V2, {"id": 2, "name": "b"}, 2),
        encoded(V2, {"id": 3, "name": None}, 9),
        b"\x01\x00\x00\x00\x01\x02",
        b"\x00\x00",
        None,
    ]
    assert assert_same(decoder, raws, times=SMALL + 1) == 3
    decoded = decoder.decode(raw_values(*raws))
    assert decoded.values.to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": "b"}, None, None, None, None]
    assert decoded.errors[2] == DecodeError("schema", "schema id 9 is not in the registry")
    assert decoded.errors[3].kind == decoded.errors[4].kind == "undecodable"


def test_reader_schema_resolves_aliases_and_defaults() -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string", "aliases": ["old"]},
        {"name": "country", "type": "string", "default": "NZ"},
    ]
    reader = text({"type": "record", "name": "R", "fields": fields})
    decoder = registered(
        RegisteredSchema(1, "AVRO", (text(V1),)), reader=reader, columns="id: long, name: string, country: string"
    )
    decoded = decoder.decode(pa.array([encoded(V1, {"id": 1, "old": "x"}, 1)]))
    assert decoded.values.to_pylist() == [{"id": 1, "name": "x", "country": "NZ"}]


def evolved(written: Any, read: Any, value: Any, column: str) -> Any:
    """The field `c` of a record that was written with the first type and is read with the second."""
    schema = record(("c", written))
    decoder = registered(
        RegisteredSchema(1, "AVRO", (text(schema),)), reader=text(record(("c", read))), columns=f"c: {column}"
    )
    raw = encoded(schema, {"c": value}, 1)
    assert_same(decoder, [raw])
    decoded = decoder.decode(pa.array([raw]))
    return decoded.errors.get(0) or decoded.values.to_pylist()[0]["c"]


MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
IN_2023 = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
A, B = record(("x", "int"), name="n.A"), record(("y", "string"), name="n.B")
A_OR_B = "struct<A: struct<x: int>, B: struct<y: string>>"
DEBEZIUMS_ENUM = {"type": "string", "connect.name": "io.debezium.data.Enum"}
OLD_ENUM = {**ENUM, "symbols": ["A"], "default": "A"}


@pytest.mark.parametrize(
    ("written", "read", "value", "column", "wanted"),
    [
        # What a value means is what its producer's schema says.
        (decimal(10, 2), decimal(12, 4), Decimal("2.56"), "decimal(12,4)", Decimal("2.5600")),
        (MILLIS, MICROS, IN_2023, "timestamp", IN_2023),
        (MICROS, MILLIS, IN_2023, "timestamp", IN_2023),
        ("long", MICROS, 1_700_000_000_000, "timestamp", IN_2023),
        ("int", MICROS, 1000, "timestamp", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (["null", decimal(10, 2)], decimal(12, 4), Decimal("2.56"), "decimal(12,4)", Decimal("2.5600")),
        (decimal(10, 2), ["null", decimal(12, 4)], Decimal("2.56"), "decimal(12,4)", Decimal("2.5600")),
        ({"type": "array", "items": MILLIS}, {"type": "array", "items": MICROS}, [IN_2023], "array<timestamp>",
         [IN_2023]),
        ("bytes", decimal(4, 2), b"\x01", "decimal(4,2)",
         DecodeError("schema", "schema id 1: column c: expected decimal(4,2), the record's schema has bytes")),
        # Unions
        (["null", A], ["null", A, B], {"x": 1}, A_OR_B, {"A": {"x": 1}, "B": None}),
        (A, ["null", A, B], {"x": 1}, A_OR_B, {"A": {"x": 1}, "B": None}),
        (["null", A], ["null", A, B], None, A_OR_B, None),
        (["null", A, B], ["null", A], ("n.A", {"x": 1}), "struct<x: int>", {"x": 1}),
        (["null", A, B], A, ("n.A", {"x": 1}), "struct<x: int>", {"x": 1}),
        (["null", A, B], ["null", A], ("n.B", {"y": "a"}), "struct<x: int>",
         DecodeError("schema", "column c: the reader's schema has no B")),
        (["null", A, B], ["null", B, A, "string"], ("n.B", {"y": "a"}), A_OR_B, {"A": None, "B": {"y": "a"}}),
        (["int", "string"], ["null", "long", "string"], 5, "struct<long: long, string: string>",
         {"long": 5, "string": None}),
        ("int", ["double", "string"], 5, "struct<double: double, string: string>", {"double": 5.0, "string": None}),
        (["null", A], ["null", {**B, "name": "n.C", "aliases": ["n.A"], "fields": A["fields"]}, B], {"x": 1},
         "struct<C: struct<x: int>, B: struct<y: string>>", {"C": {"x": 1}, "B": None}),
        (["string", A], ["string", record(("x", "long"), name="n.A")], {"x": 1},
         "struct<string: string, A: struct<x: long>>", {"string": None, "A": {"x": 1}}),
        # Promotion
        ("int", "double", 2**24 + 1, "double", 16777217.0),
        ("int", "long", 7, "long", 7),
        ("string", "bytes", "ä", "binary", "ä".encode()),
        ("bytes", "string", "ä".encode(), "string", "ä"),
        ("null", ["null", "long"], None, "long", None),
        # Named types, and enums of Debezium's, which are texts
        (DEBEZIUMS_ENUM, DEBEZIUMS_ENUM, "new", "string", "new"),
        ("string", DEBEZIUMS_ENUM, "new", "string", "new"),
        (ENUM, OLD_ENUM, "B", "string", "A"),
        ({"type": "map", "values": A},
         {"type": "map", "values": {**A, "fields": [{"name": "z", "type": "int", "aliases": ["x"]}]}},
         {"k": {"x": 1}}, "map<string,struct<z: int>>", [("k", {"z": 1})]),
        (A, {**A, "fields": [*A["fields"], {"name": "z", "type": "int", "aliases": ["x"], "default": 5}]}, {"x": 1},
         "struct<x: int, z: int>", {"x": 1, "z": 5}),
        (A, B, {"x": 1}, "struct<y: string>",
         DecodeError("schema", "schema id 1: column c: the record's schema has n.A, the reader's n.B")),
        (A, {**A, "fields": B["fields"]}, {"x": 1}, "struct<y: string>",
         DecodeError("schema", "schema id 1: column c.y: not in the record's schema, and the reader's has no default")),
    ],
)  # fmt: skip
def test_an_older_schema_is_read_as_the_reader_has_it_and_means_what_it_says(
    written: Any, read: Any, value: Any, column: str, wanted: Any
) -> None:
    assert evolved(written, read, value, column) == wanted


@pytest.mark.parametrize(
    ("kind", "default", "column", "wanted"),
    [
        ("bytes", "\u00ff", "binary", b"\xff"),
        (decimal(4, 2), "\u0000", "decimal(4,2)", Decimal(0)),
        (FIXED, "a\u00ff", "binary", b"a\xff"),
        ("double", 1, "double", 1.0),
        (["null", "long"], None, "long", None),
        (["long", "null"], 7, "long", 7),
        ([A, B], {"x": 1}, A_OR_B, {"A": {"x": 1}, "B": None}),
        ([A, B], {"y": "a"}, A_OR_B, {"A": None, "B": {"y": "a"}}),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], "array<binary>", [b"\xff"]),
        ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, "map<string,binary>", [("a", b"\xff")]),
        ({**A, "fields": [{"name": "x", "type": "bytes", "default": "\u00ff"}]}, {}, "struct<x: binary>",
         {"x": b"\xff"}),
    ],
)  # fmt: skip
def test_defaults_of_the_reader(kind: Any, default: Any, column: str, wanted: Any) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "c", "type": kind, "default": default}]
    reader = text({"type": "record", "name": "R", "fields": fields})
    decoder = registered(RegisteredSchema(1, "AVRO", (text(V1),)), reader=reader, columns=f"id: long, c: {column}")
    decoded = decoder.decode(pa.array([encoded(V1, {"id": 1, "old": "x"}, 1)] * 2))
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"id": 1, "c": wanted}] * 2)


@pytest.mark.parametrize(
    ("kind", "default", "column", "value"),
    [
        ("string", None, "string", "a"),
        ("string", 0, "string", "a"),
        ("boolean", "false", "boolean", True),
        ("int", 1.0, "int", 2),
        ({**ENUM, "default": "C"}, "A", "string", "B"),
        ({"type": "array", "items": {**A, "fields": [{"name": "x", "type": "long", "default": ""}]}}, [],
         "array<struct<x: long>>", [{"x": 1}]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("reader", [False, True])
def test_a_wrong_default_of_the_schema_by_which_it_was_written_does_not_matter(
    kind: Any, default: Any, column: str, value: Any, reader: bool
) -> None:
    """As in Java: old versions of Avro let it pass, and records are not read by it."""
    fields = [{"name": "id", "type": "long"}, {"name": "c", "type": kind, "default": default}]
    wrong = {"type": "record", "name": "R", "fields": fields}
    right = without_defaults(wrong)
    decoder = registered(
        RegisteredSchema(1, "AVRO", (text(wrong),)),
        reader=text(right) if reader else None,
        columns=f"id: long, c: {column}",
    )
    decoded = decoder.decode(pa.array([encoded(right, {"id": 1, "c": value}, 1)] * 2))
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"id": 1, "c": value}] * 2)


def without_defaults(kind: Any) -> Any:
    if isinstance(kind, dict):
        return {name: without_defaults(part) for name, part in kind.items() if name != "default"}
    return [without_defaults(part) for part in kind] if isinstance(kind, list) else kind


def test_records_of_the_readers_own_schema_are_read_together() -> None:
    decoder = registered(RegisteredSchema(1, "AVRO", (text(V2),)), reader=text(V2))
    assert assert_same(decoder, [encoded(V2, {"id": 1, "name": "a"}, 1)], times=SMALL + 1) == 1


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (RegisteredSchema(1, "JSON", ("{}",)), "schema id 1 is of type JSON, expected AVRO"),
        (RegisteredSchema(1, "AVRO", (text(record(("id", "string"))),)), "column id: expected long"),
        (RegisteredSchema(1, "AVRO", ("{}",)), "schema id 1"),
    ],
)
def test_schema_that_cannot_be_read_makes_dead_letters(schema: RegisteredSchema, says: str) -> None:
    error = registered(schema).decode(pa.array([b"\x00\x00\x00\x00\x01\x02"])).errors[0]
    assert error.kind == "schema"
    assert says in error.message


def test_references() -> None:
    inner = {"type": "record", "name": "Inner", "namespace": "x", "fields": [{"name": "n", "type": "long"}]}
    outer = {"type": "record", "name": "Outer", "namespace": "x", "fields": [{"name": "id", "type": "Inner"}]}
    whole = {**outer, "fields": [{"name": "id", "type": inner}]}
    decoder = registered(RegisteredSchema(1, "AVRO", (text(inner), text(outer)), ("x.Inner", "")),
                         columns="id: struct<n: long>")  # fmt: skip
    decoded = decoder.decode(pa.array([encoded(whole, {"id": {"n": 5}}, 1)]))
    assert decoded.values.to_pylist() == [{"id": {"n": 5}}]


def test_key_that_is_one_value() -> None:
    decoder = Avro(pa.struct([("id", pa.int64())]), '"long"')
    assert decoder.decode(pa.array([b"\x04"])).values.to_pylist() == [{"id": 2}]

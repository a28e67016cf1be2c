"""Type strings: parsed to Arrow and printed back; errors that say where."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.schema.types import (
    MAX_DEPTH,
    as_text,
    field_text,
    landed_type,
    own_type,
    parse_columns,
    parse_type,
    type_name,
)
from resources.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("bigint", pa.int64()),
        ("BIGINT", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("uuid", pa.string()),
        ("time", pa.string()),
        ("fixed(16)", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        (" decimal ( 38 , 0 ) ", pa.decimal128(38, 0)),
        ("array<int>", pa.list_(pa.field("element", pa.int32()))),
        ("array<int not null>", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("map<string,double>", pa.map_(pa.string(), pa.float64())),
        (
            "struct<a: int, b: string not null>",
            pa.struct([("a", pa.int32()), pa.field("b", pa.string(), nullable=False)]),
        ),
        (
            "struct<`a ``b`: array<map<string,date>>>",
            pa.struct([("a `b", pa.list_(pa.map_(pa.string(), pa.date32())))]),
        ),
        ("struct<größe: int, ü: date>", pa.struct([("größe", pa.int32()), ("ü", pa.date32())])),
    ],
)
def test_known_types(text: str, expected: pa.DataType) -> None:
    assert parse_type(text) == (expected, True)
    assert parse_type(f"{text} not null") == (expected, False)
    assert parse_type(f"{text} NOT  NULL") == (expected, False)


def test_columns_keep_their_order_and_their_nullability() -> None:
    assert parse_columns({"b": "int not null", "a": "string"}) == pa.schema(
        [pa.field("b", pa.int32(), nullable=False), pa.field("a", pa.string())]
    )


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("", 1, "expected a type"),
        ("number", 1, "no such type"),
        ("array<number>", 7, "no such type"),
        ("int nul", 5, "expected the end"),
        ("int not", 8, "expected `not null`"),
        ("decimal", 8, "expected `(`"),
        ("decimal(39,0)", 8, "a decimal has"),
        ("decimal(2,3)", 8, "a decimal has"),
        ("decimal(2)", 10, "expected `,`"),
        ("array<int", 10, "expected `>`"),
        ("map<string>", 11, "expected `,`"),
        ("struct<>", 8, "expected a field name"),
        ("struct<a int>", 10, "expected `:`"),
        ("struct<a: int, a: int>", 16, "stands twice"),
        ("int; drop", 4, "unexpected character"),
        ("fixed", 6, "expected `(`"),
        ("fixed(0)", 6, "fixed has 1 to 65,535 bytes"),
        ("fixed(65536)", 6, "fixed has 1 to 65,535 bytes"),
        ("map<uuid,int>", 5, "the key of a map cannot be uuid: write string"),
        ("map<fixed(2),int>", 5, "the key of a map cannot be fixed(2): write binary"),
        ("array<" * (MAX_DEPTH + 1) + "int" + ">" * (MAX_DEPTH + 1), 6 * (MAX_DEPTH + 1) + 1, "inside each other"),
    ],
)
def test_wrong_types_are_refused_with_column_position_and_remedy(text: str, position: int, what: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_columns({"good": "int", "delay": text})
    assert refused.value.facts == {"column": "delay", "position": position}
    assert what in refused.value.what
    assert refused.value.where == "column delay"
    assert "timestamp_ntz" in refused.value.remedy


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("integer", "int"),
        ("INTEGER not null", "int"),
        ("array<integer>", "int"),
        ("varchar(20)", "string"),
        ("numeric(10,2)", "decimal(p,s)"),
        ("bool", "boolean"),
        ("timestmap", "timestamp"),
        ("decmal(10,2)", "decimal(p,s)"),
        ("struct<a: bytes>", "binary"),
        ("DOUBLE  PRECISION", "double"),
        ("timestamp with time zone not null", "timestamp"),
        ("timestamp without time zone", "timestamp_ntz"),
    ],
)
def test_a_name_of_other_systems_or_a_slip_is_answered_with_the_type_that_was_meant(text: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no such type|expected the end") as refused:
        parse_type(text)
    assert refused.value.remedy == f"did you mean `{meant}`?"


@pytest.mark.parametrize("text", ["struct<a-b: int>", "struct<a b: int>", "struct<1st: int>", "struct<$: int>"])
def test_the_error_for_a_name_that_needs_backticks_says_so(text: str) -> None:
    with pytest.raises(ConfigurationError, match="in backticks"):
        parse_type(text)


def test_a_depth_of_thousands_is_refused_not_overflown() -> None:
    with pytest.raises(ConfigurationError, match="inside each other"):
        parse_type("array<" * 100_000)


FORMS = {
    "uuid": pa.uuid(),
    "time": pa.time64("us"),
    "fixed(3)": pa.binary(3),
    "array<uuid>": pa.list_(pa.field("element", pa.uuid())),
    "map<string,fixed(2)>": pa.map_(pa.string(), pa.field("value", pa.binary(2))),
    "struct<a: time, b: array<uuid not null>>": pa.struct(
        [("a", pa.time64("us")), ("b", pa.list_(pa.field("element", pa.uuid(), nullable=False)))]
    ),
}


@pytest.mark.parametrize(("text", "own"), FORMS.items())
def test_text_and_bytes_of_a_form_have_types_of_their_own_in_tables(text: str, own: pa.DataType) -> None:
    field = parse_columns({"c": text}).field("c")
    assert own_type(field) == own
    assert landed_type(own) == field.type
    assert field_text(field) == field_text(as_text(field)) == type_name(own) == text
    assert parse_columns({"c": type_name(own)}).field("c").equals(field, check_metadata=True)


def test_an_arrow_type_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="uint8"):
        type_name(pa.uint8())


_SCALARS = st.sampled_from(
    ["boolean", "int", "long", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"]
) | st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: f"decimal({p},{s})"))
_NOT_NULL = st.sampled_from(["", " not null"])


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    name = st.sampled_from(["a", "_b1", "`with space`", "`tick``ed`", "`1st`", "ü"])
    field = st.builds("{}: {}{}".format, name, inner, _NOT_NULL)
    return (
        st.builds("array<{}{}>".format, inner, _NOT_NULL)
        | st.builds("map<{},{}{}>".format, _SCALARS, inner, _NOT_NULL)
        | st.lists(field, min_size=1, max_size=4, unique_by=lambda f: f.split(":")[0]).map(
            lambda fields: f"struct<{', '.join(fields)}>"
        )
    )


@given(st.recursive(_SCALARS, _nested, max_leaves=12))
def test_names_round_trip(text: str) -> None:
    kind, nullable = parse_type(text)
    assert nullable
    assert type_name(kind) == text
    assert parse_type(type_name(kind))[0] == kind

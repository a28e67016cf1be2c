"""Every pair of types: what follows, what is widened, what is refused."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from jobs.evolution import AddColumn, RelaxRequired, SchemaChange, WidenType, plan_evolution
from jobs.schema.types import parse_columns, parse_type
from jobs.spec.tables import Evolution
from resources.errors import SchemaRefused

TYPES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal(9,2)",
    "decimal(18,2)",
    "decimal(18,4)",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "array<int>",
    "array<long>",
    "array<string>",
    "map<string,int>",
    "map<string,long>",
    "map<int,int>",
    "struct<a: int>",
    "struct<a: long>",
    "struct<a: string>",
]
WIDENED = {
    ("int", "long"): ("c",),
    ("float", "double"): ("c",),
    ("decimal(9,2)", "decimal(18,2)"): ("c",),
    ("array<int>", "array<long>"): ("c", "element"),
    ("map<string,int>", "map<string,long>"): ("c", "value"),
    ("struct<a: int>", "struct<a: long>"): ("c", "a"),
}


def changes(present: dict[str, str], wanted: dict[str, str], rules: Evolution | None = None) -> list[SchemaChange]:
    return plan_evolution("lake.t", parse_columns(present), parse_columns(wanted), rules or Evolution())


@pytest.mark.parametrize(("old", "new"), list(itertools.product(TYPES, TYPES)))
def test_every_pair_of_types(old: str, new: str) -> None:
    if (old, new) in WIDENED:
        (change,) = changes({"c": old}, {"c": new})
        assert isinstance(change, WidenType)
        assert change.path == WIDENED[old, new]
    elif old == new or (new, old) in WIDENED:
        # The same, or the table is wider than what is declared: rows fit as they are.
        assert changes({"c": old}, {"c": new}) == []
    else:
        with pytest.raises(SchemaRefused) as caught:
            changes({"c": old}, {"c": new})
        assert "column c" in str(caught.value)
        assert caught.value.where == "lake.t"


def test_refusal_names_column_old_and_new_type_of_all_that_do_not_fit() -> None:
    with pytest.raises(SchemaRefused) as caught:
        changes({"a": "int", "b": "struct<x: date>", "c": "int"}, {"a": "string", "b": "struct<x: int>", "c": "long"})
    assert "column a is int in the table and string in the file" in str(caught.value)
    assert "column b.x is date in the table and int in the file" in str(caught.value)


@pytest.mark.parametrize(
    ("present", "wanted", "expected"),
    [
        pytest.param({"a": "int"}, {"a": "int", "b": "date"}, [AddColumn(("b",), pa.date32())], id="column"),
        pytest.param({"a": "int"}, {"b": "int", "a": "int"}, [AddColumn(("b",), pa.int32())], id="order is no matter"),
        pytest.param(
            {"a": "struct<x: int>"},
            {"a": "struct<x: int, y: string>"},
            [AddColumn(("a", "y"), pa.string())],
            id="nested",
        ),
        pytest.param(
            {"a": "array<struct<x: int>>"},
            {"a": "array<struct<x: int, y: string>>"},
            [AddColumn(("a", "element", "y"), pa.string())],
            id="in a list",
        ),
        pytest.param(
            {"a": "map<string,struct<x: int>>"},
            {"a": "map<string,struct<x: long, y: string>>"},
            [WidenType(("a", "value", "x"), pa.int32(), pa.int64()), AddColumn(("a", "value", "y"), pa.string())],
            id="in a map",
        ),
        pytest.param({"a": "int not null"}, {"a": "int"}, [RelaxRequired(("a",))], id="required to optional"),
        pytest.param({"a": "int"}, {"a": "int not null"}, [], id="optional stays"),
        pytest.param(
            {"a": "array<int not null>"}, {"a": "array<int>"}, [RelaxRequired(("a", "element"))], id="elements"
        ),
        pytest.param(
            {"a": "map<int,int not null>"}, {"a": "map<int,int>"}, [RelaxRequired(("a", "value"))], id="map values"
        ),
        pytest.param({"a": "int", "b": "int"}, {"a": "int"}, [], id="no longer declared stays"),
        pytest.param(
            {"a": "int", "b": "int not null"}, {"a": "int"}, [RelaxRequired(("b",))], id="no longer declared, required"
        ),
        pytest.param(
            {"a": "int not null"},
            {"a": "long"},
            [RelaxRequired(("a",)), WidenType(("a",), pa.int32(), pa.int64())],
            id="two at once",
        ),
    ],
)
def test_allowed_changes(present: dict[str, str], wanted: dict[str, str], expected: list[SchemaChange]) -> None:
    assert changes(present, wanted) == expected


@pytest.mark.parametrize(
    ("rule", "present", "wanted"),
    [
        ("add_columns", {"a": "int"}, {"a": "int", "b": "int"}),
        ("widen_types", {"a": "int"}, {"a": "long"}),
        ("relax_required", {"a": "int not null"}, {"a": "int"}),
    ],
)
def test_each_rule_can_be_switched_off(rule: str, present: dict[str, str], wanted: dict[str, str]) -> None:
    assert len(changes(present, wanted)) == 1
    with pytest.raises(SchemaRefused, match="switched off by `evolve`"):
        changes(present, wanted, Evolution.model_validate({rule: False}))


def test_storage_variants_of_arrow_are_no_change() -> None:
    large = pa.schema(
        [
            pa.field("s", pa.large_string()),
            pa.field("b", pa.large_binary()),
            pa.field("l", pa.large_list(pa.field("item", pa.large_string()))),
        ]
    )
    wanted = parse_columns({"s": "string", "b": "binary", "l": "array<string>"})
    assert plan_evolution("t", large, wanted, Evolution()) == []


@pytest.mark.parametrize("theirs", [pa.time64("us"), pa.uuid(), pa.timestamp("ns")])
def test_column_of_a_type_that_we_do_not_have_is_refused_by_name(theirs: pa.DataType) -> None:
    present = pa.schema([pa.field("theirs", theirs)])
    with pytest.raises(SchemaRefused, match="column theirs"):
        plan_evolution("t", present, parse_columns({"theirs": "string"}), Evolution())
    # One that the pipeline does not declare is nobody's business.
    assert plan_evolution("t", present, parse_columns({"a": "int"}), Evolution())


def test_changes_say_what_they_do() -> None:
    kind, _ = parse_type("decimal(9,2)")
    wide, _ = parse_type("decimal(18,2)")
    assert str(AddColumn(("a", "b"), kind)) == "add column a.b decimal(9,2)"
    assert str(WidenType(("a",), kind, wide)) == "widen a from decimal(9,2) to decimal(18,2)"
    assert str(RelaxRequired(("a",))) == "make a optional"


# ---- upper and lower case -------------------------------------------------------------------------------------------


def with_case(present: dict[str, str], wanted: dict[str, str]) -> list[SchemaChange]:
    return plan_evolution("lake.t", parse_columns(present), parse_columns(wanted), Evolution(), ignore_case=True)


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        ({"id": "int"}, {"Id": "int"}),
        ({"a": "struct<id: int>"}, {"a": "struct<ID: int>"}),
        ({"a": "array<struct<id: int>>"}, {"a": "array<struct<ID: int>>"}),
        ({"id": "int", "Id": "int"}, {"id": "int"}),
    ],
)
def test_columns_that_differ_by_case_only_are_refused(present: dict[str, str], wanted: dict[str, str]) -> None:
    with pytest.raises(SchemaRefused, match="by upper and lower case only"):
        changes(present, wanted)


@pytest.mark.parametrize(
    ("ignore_case", "advice"),
    [(None, " (declare it as id)"), (False, " (`ignore_case` makes one column of two spellings)")],
)
def test_option_is_advised_where_it_helps(ignore_case: bool | None, advice: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        plan_evolution("t", parse_columns({"id": "int"}), parse_columns({"Id": "int"}), Evolution(), ignore_case)
    assert f"by upper and lower case only{advice}" in str(refused.value)


def test_ignored_case_takes_the_spelling_of_the_table() -> None:
    assert with_case({"id": "int not null", "A": "struct<X: int>"}, {"ID": "long", "a": "struct<x: int, y: int>"}) == [
        RelaxRequired(("id",)),
        WidenType(("id",), pa.int32(), pa.int64()),
        AddColumn(("A", "y"), pa.int32()),
    ]
    with pytest.raises(SchemaRefused, match="differs from id and Id in the table"):
        with_case({"id": "int", "Id": "int"}, {"ID": "int"})

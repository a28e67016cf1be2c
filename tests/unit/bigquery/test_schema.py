"""Evolution of BigQuery schemas: what is done, in which order the fields stand after it, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from google.cloud.bigquery import SchemaField as F

from jobs.destinations.bigquery.columns import schema_field
from jobs.destinations.bigquery.field import AnyField, Field
from jobs.destinations.bigquery.schema import can_follow, changed_fields, lacking, placed, plan_changes, taken
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.schema.types import parse_columns
from jobs.spec.tables import Evolution
from resources.errors import SchemaRefused
from tests.kit import specs

PRESENT = [
    F("id", "INTEGER", mode="REQUIRED"),
    F("Name", "STRING", mode="REQUIRED"),
    F("at", "RECORD", fields=[F("x", "FLOAT"), F("y", "FLOAT", mode="REQUIRED")]),
    F("tags", "RECORD", mode="REPEATED", fields=[F("k", "STRING")]),
    F("amount", "NUMERIC"),
    F("doc", "JSON"),
]


def wanted(**changes: F | None) -> list[F]:
    by_name = {f.name: f for f in PRESENT} | changes
    return [f for f in by_name.values() if f is not None]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (wanted(), []),
        (wanted(Name=F("name", "STRING", mode="REQUIRED")), []),
        (wanted(note=F("note", "STRING", mode="REQUIRED")), ["add column note string"]),
        (wanted(id=F("id", "INTEGER")), ["make id optional"]),
        (wanted(Name=None), ["make Name optional"]),
        (wanted(at=F("at", "RECORD", fields=[F("x", "FLOAT"), F("y", "FLOAT")])), ["make at.y optional"]),
        (
            wanted(at=F("at", "RECORD", fields=[F("z", "DATE"), F("x", "FLOAT"), F("y", "FLOAT", mode="REQUIRED")])),
            ["add column at.z date"],
        ),
        (
            wanted(tags=F("tags", "RECORD", mode="REPEATED", fields=[F("k", "STRING"), F("v", "INTEGER")])),
            ["add column tags.element.v long"],
        ),
        (wanted(geo=F("geo", "GEOGRAPHY")), ["add column geo string"]),
    ],
)
def test_allowed_changes(fields: list[F], says: list[str]) -> None:
    changes = plan_changes("t", PRESENT, fields, Evolution())
    assert [str(c) for c in changes] == says
    after = changed_fields(PRESENT, fields, changes)
    assert plan_changes("t", after, fields, Evolution()) == [], "once is enough"
    assert [f.name for f in after[: len(PRESENT)]] == [f.name for f in PRESENT], "additions stand last"
    assert all(f.mode != "REQUIRED" for f in after[len(PRESENT) :])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (wanted(id=F("id", "STRING")), "column id is long in the table and string in the file"),
        (wanted(amount=F("amount", "BIGNUMERIC")), "column amount"),
        (wanted(doc=F("doc", "STRING")), "column doc is JSON in the table and STRING in the file"),
        (wanted(amount=F("amount", "TIME")), "column amount is NUMERIC in the table and TIME in the file"),
        (wanted(tags=F("tags", "RECORD", fields=[F("k", "STRING")])), "column tags"),
        (wanted(at=F("at", "RECORD", fields=[F("x", "STRING"), F("y", "FLOAT")])), "column at.x"),
    ],
)
def test_refused_changes(fields: list[F], says: str) -> None:
    with pytest.raises(SchemaRefused) as problem:
        plan_changes("t", PRESENT, fields, Evolution())
    assert says in str(problem.value)


@pytest.mark.parametrize(
    ("present", "declared", "says"),
    [
        (F("a", "NUMERIC", precision=10, scale=2), "decimal(10,2)", None),
        (F("a", "NUMERIC", precision=10, scale=2), "decimal(8,1)", None),
        (F("a", "NUMERIC", precision=10, scale=2), "decimal(9,2)", None),
        (
            F("a", "NUMERIC", precision=10, scale=2),
            "decimal(12,4)",
            "a is NUMERIC(10, 2) in the table and decimal(12,4)",
        ),
        (
            F("a", "NUMERIC", precision=10, scale=2),
            "decimal(12,2)",
            "a is NUMERIC(10, 2) in the table and decimal(12,2)",
        ),
        (F("a", "NUMERIC", precision=10, scale=2), "decimal(9,0)", "a is NUMERIC(10, 2) in the table and decimal(9,0)"),
        (
            F("a", "NUMERIC", precision=5),
            "decimal(5,1)",
            "a is NUMERIC(5, 0) in the table and decimal(5,1) in the file",
        ),
        (F("a", "NUMERIC", precision=5), "decimal(38,20)", "column a is decimal(38,9) in the table"),
        (F("a", "BIGNUMERIC", precision=60, scale=30), "decimal(38,30)", None),
        (F("a", "BIGNUMERIC", precision=40, scale=38), "decimal(38,20)", "column a is BIGNUMERIC(40, 38) in the table"),
        (
            F("a", "NUMERIC", "REPEATED", precision=10, scale=2),
            "array<decimal(12,4)>",
            "a is NUMERIC(10, 2) in the table",
        ),
        (
            F("a", "RECORD", fields=[F("X", "NUMERIC", precision=10, scale=2)]),
            "struct<x: decimal(12,4)>",
            "a.x is NUMERIC(10, 2) in the table and decimal(12,4) in the file",
        ),
        (F("a", "STRING", max_length=50), "string", None),
    ],
)
def test_digits_of_a_table_that_exists(present: F, declared: str, says: str | None) -> None:
    kind = parse_columns({"a": declared}).field("a").type
    fields = [schema_field("a", kind, "NULLABLE", False, "here", required=True)]
    if says is None:
        assert plan_changes("t", [present], fields, Evolution()) == []
        return
    with pytest.raises(SchemaRefused) as problem:
        plan_changes("t", [present], fields, Evolution())
    assert says in str(problem.value)


@pytest.mark.parametrize(
    ("present", "takes", "also", "not_also"),
    [
        (F("a", "NUMERIC", precision=10, scale=2), "decimal(10,2)", "decimal(9,1)", "decimal(12,4)"),
        (F("a", "NUMERIC"), "decimal(38,9)", "decimal(12,4)", "decimal(38,10)"),
        (F("a", "BIGNUMERIC", precision=40, scale=38), "decimal(38,36)", "decimal(35,34)", "decimal(38,20)"),
    ],
)
def test_columns_from_records_have_the_digits_of_the_table(present: F, takes: str, also: str, not_also: str) -> None:
    def kind(text: str) -> pa.DataType:
        return parse_columns({"a": text}).field("a").type

    table = BigQueryTable.model_validate(specs.table("bigquery", "append", "d.dest"))
    found = taken([present], ["a"], table)["a"]
    assert found.type == kind(takes)
    assert [found.as_well(kind(one)) for one in (takes, also, not_also)] == [True, True, False]


def test_nested_addition_that_the_service_left_out_is_seen() -> None:
    fields = wanted(at=F("at", "RECORD", fields=[*PRESENT[2].fields, F("z", "DATE")]))
    assert [f.name for f in lacking(PRESENT, fields)] == ["at"]
    assert lacking(fields, fields) == []


def record(name: str, *fields: AnyField, mode: str = "NULLABLE") -> Field:
    return Field(name, "RECORD", mode, tuple(map(Field.of, fields)))


def named(fields: tuple[Field, ...]) -> list[object]:
    return [[f.name, *named(f.fields)] if f.fields else f.name for f in fields]


@pytest.mark.parametrize(
    ("declared", "destination", "places"),
    [
        ("first last", "last first", ["last", "first"]),
        ("first last", "first last title", ["first", "last", "title"]),
        ("first middle last", "first last", ["first", "last", "middle"]),
        ("First last", "last FIRST", ["last", "First"]),
        ("first last", "", ["first", "last"]),
    ],
)
@pytest.mark.parametrize("mode", ["NULLABLE", "REPEATED"])
def test_nested_fields_are_staged_where_the_destination_has_them(
    declared: str, destination: str, places: list[str], mode: str
) -> None:
    def name(text: str) -> Field:
        return record("name", *(Field(one, "STRING") for one in text.split()), mode=mode)

    staged = [record("value", Field("id", "INTEGER"), name(declared), record("in", name(declared)))]
    has = [*([name(destination), record("IN", name(destination))] if destination else []), Field("id", "INTEGER")]
    (found,) = placed(staged, has)
    assert named(found.fields) == ["id", ["name", *places], ["in", ["name", *places]]]
    follows = declared.lower().split() == [one.lower() for one in places[: len(declared.split())]]
    assert can_follow("t", staged, [found]) is follows


def test_staging_table_follows_by_additions_only() -> None:
    staged = [record("value", Field("id", "INTEGER"), Field("name", "STRING")), Field("orderBy", "INTEGER")]
    other_places = [record("value", Field("name", "STRING"), Field("gone", "DATE"), Field("id", "INTEGER")), staged[1]]
    assert can_follow("t", other_places, staged), "columns go by their names"
    assert not can_follow("t", [staged[0], Field("orderBy", "TIMESTAMP")], staged)


COLLATED = F.from_api_repr({"name": "Id", "type": "STRING", "mode": "NULLABLE", "collation": "und:ci"})


@pytest.mark.parametrize(
    ("present", "wanted", "named"),
    [
        (COLLATED, Field("id", "STRING"), "Id"),
        (F("k", "RECORD", fields=[F("n", "INTEGER"), COLLATED]), record("k", Field("id", "STRING")), "k.Id"),
    ],
)
def test_texts_that_are_compared_have_no_collation(present: F, wanted: Field, named: str) -> None:
    """Else keys that differ by case would be one row."""
    assert plan_changes("t", [present], [wanted], Evolution(), {"other"}) == []
    with pytest.raises(SchemaRefused) as problem:
        plan_changes("t", [present], [wanted], Evolution(), {wanted.name})
    assert f"t: column {named} has the collation und:ci" in str(problem.value)
    assert "no collation" in problem.value.remedy


def test_staging_table_with_a_collation_is_replaced() -> None:
    value = record("value", Field("n", "INTEGER"))
    staged = [record("key", Field("id", "STRING")), value]
    plain = [F.from_api_repr(f.to_api_repr()) for f in staged]
    assert can_follow("t", plain, staged)
    assert not can_follow("t", [F("key", "RECORD", fields=[COLLATED]), plain[1]], staged)
    assert can_follow("t", [plain[0], F("value", "RECORD", fields=[F("n", "INTEGER"), COLLATED])], staged)

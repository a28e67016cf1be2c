"""Iceberg schemas and layouts from Arrow's, and every change of evolution applied to a real table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.evolution import plan_evolution
from jobs.iceberg.partition_text import parse_partition
from jobs.iceberg.schema import apply_changes, arrow_schema, iceberg_schema, partition_spec
from jobs.schema.types import parse_columns
from jobs.spec.tables import Evolution
from resources.iceberg import IcebergCatalog

ALL = {
    "b": "boolean",
    "i": "int not null",
    "l": "long",
    "f": "float",
    "d": "double",
    "n": "decimal(38,10)",
    "s": "string",
    "y": "binary",
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "many": "array<string not null>",
    "by": "map<string,struct<x: int, y: array<int>>>",
    "deep": "struct<a: struct<b: int not null>, `odd name`: string>",
}


def test_every_type_comes_back_as_it_was_declared(lake: IcebergCatalog) -> None:
    declared = parse_columns(ALL)
    table = lake.create("n.t", iceberg_schema(declared, ["i"]))
    assert arrow_schema(table) == declared
    assert table.schema().identifier_field_names() == {"i"}


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        ({"a": "int"}, {"a": "long", "b": "struct<x: int>"}),
        ({"a": "float not null"}, {"a": "double"}),
        ({"a": "decimal(9,2)"}, {"a": "decimal(18,2)"}),
        ({"a": "struct<x: int>"}, {"a": "struct<x: long, y: map<string,date>>"}),
        ({"a": "struct<x: int not null>"}, {"a": "struct<x: int>"}),
        ({"a": "array<int not null>"}, {"a": "array<long>"}),
        ({"a": "array<struct<x: int>>"}, {"a": "array<struct<x: long, y: string>>"}),
        ({"a": "map<string,int not null>"}, {"a": "map<string,long>"}),
        ({"a": "map<string,struct<x: int>>"}, {"a": "map<string,struct<x: int, y: string>>"}),
        ({"a": "int", "b": "int not null"}, {"a": "int"}),
    ],
)
def test_changes_of_evolution_take_effect(
    lake: IcebergCatalog, present: dict[str, str], wanted: dict[str, str]
) -> None:
    table = lake.create("n.t", iceberg_schema(parse_columns(present)))
    apply_changes(table, plan_evolution("t", arrow_schema(table), parse_columns(wanted), Evolution()))
    table = lake.require("n.t")
    after = arrow_schema(table)
    assert plan_evolution("t", after, parse_columns(wanted), Evolution()) == []
    for field in parse_columns(wanted):
        assert after.field(field.name) == field


def test_no_change_is_no_commit(lake: IcebergCatalog) -> None:
    table = lake.create("n.t", iceberg_schema(parse_columns({"a": "int"})))
    before = table.metadata_location
    apply_changes(table, [])
    assert lake.require("n.t").metadata_location == before


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ({"a": "int", "b": "int not null"}, {"b"}),
        ({"c": "int"}, set[str]()),
        ({"a": "int not null", "b": "int not null", "c": "int"}, {"a", "b"}),
    ],
    ids=["a key may be null", "another key", "another column"],
)
def test_what_may_be_null_identifies_no_row(lake: IcebergCatalog, wanted: dict[str, str], left: set[str]) -> None:
    """Iceberg has required columns only as identifier fields."""
    table = lake.create("n.t", iceberg_schema(parse_columns({"a": "int not null", "b": "int not null"}), ["a", "b"]))
    apply_changes(table, plan_evolution("t", arrow_schema(table), parse_columns(wanted), Evolution()))
    assert lake.require("n.t").schema().identifier_field_names() == left


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("s", "s: identity"),
        ("year(day)", "day_year: year"),
        ("month(day)", "day_month: month"),
        ("day(at)", "at_day: day"),
        (" hour( wall ) ", "wall_hour: hour"),
        ("bucket(16, l)", "l_bucket: bucket[16]"),
        ("truncate(3,s)", "s_trunc: truncate[3]"),
    ],
)
def test_partition_transforms(text: str, printed: str) -> None:
    (field,) = partition_spec(iceberg_schema(parse_columns(ALL)), [text]).fields
    assert f"{field.name}: {field.transform}" == printed


@pytest.mark.parametrize("text", ["bucket(l)", "day(3, at)", "week(at)", "s; DROP TABLE t", "bucket(0, l)"])
def test_text_that_is_no_partition(text: str) -> None:
    assert parse_partition(text) is None


def test_no_partition_by_is_unpartitioned() -> None:
    assert partition_spec(iceberg_schema(pa.schema([pa.field("a", pa.int32())])), []).is_unpartitioned()


@pytest.mark.parametrize("text", ["c", "year(c)", "month(c)", "day(c)", "hour(c)", "bucket(16, c)", "truncate(4, c)"])
def test_partitions_suit_the_columns_that_iceberg_has_them_for(text: str) -> None:
    partition = parse_partition(text)
    assert partition is not None
    for column in parse_columns(ALL):
        schema = iceberg_schema(pa.schema([column.with_name("c")]))
        transform = partition_spec(schema, [text]).fields[0].transform
        assert partition.suits(column.type) == transform.can_transform(schema.fields[0].field_type), column

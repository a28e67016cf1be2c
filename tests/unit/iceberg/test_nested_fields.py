"""Landed values get the nested fields of a table's columns. DuckDB evaluates the expressions, as Spark does."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from jobs.evolution import AddColumn
from jobs.iceberg.conformed import conformed
from jobs.iceberg.nested_fields import nested_change, nested_changes, type_at
from jobs.iceberg.schema import apply_changes, arrow_schema, iceberg_schema
from resources.iceberg import IcebergCatalog
from sql import render


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


TEXT, LONG = pa.string(), pa.int64()
GEO = struct(lat=LONG)
# Neither has the other's: `fax` was declared once, `zip` and `geo.lon` were added by hand.
LANDED = struct(city=TEXT, fax=TEXT, geo=GEO)
TABLE = struct(geo=struct(lat=LONG, lon=pa.list_(pa.field("element", LONG, nullable=False))), City=TEXT, zip=TEXT)
VALUES = [{"city": "a", "fax": "1", "geo": {"lat": 5}}, {"city": None, "fax": None, "geo": None}, None]
ODD = struct(**{"it's `a`.b": LONG, "c": LONG})
ODD_WANTED = struct(**{"it's `a`.b": LONG, "d": struct(**{"o.d-d": TEXT})})
SHAPED = [
    {"geo": {"lat": 5, "lon": None}, "City": "a", "zip": None},
    {"geo": None, "City": None, "zip": None},
    None,
]


@pytest.mark.parametrize(
    ("given", "wanted", "values", "expected"),
    [
        (LANDED, TABLE, VALUES, SHAPED),
        (struct(x=LANDED, y=LONG), struct(x=TABLE), [{"x": VALUES[0], "y": 1}], [{"x": SHAPED[0]}]),
        (pa.list_(LANDED), pa.list_(TABLE), [VALUES, [], None], [SHAPED, [], None]),
        (pa.list_(pa.list_(LANDED)), pa.list_(pa.list_(TABLE)), [[VALUES, None]], [[SHAPED, None]]),
        (struct(a=LONG, b=LONG), struct(b=LONG, a=LONG), [{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
        (ODD, ODD_WANTED, [{"it's `a`.b": 1, "c": 2}], [{"it's `a`.b": 1, "d": None}]),
    ],
    ids=["struct", "struct in it", "list", "list of lists", "other order", "odd names"],
)
def test_values_get_the_fields_of_the_table_by_name(
    given: pa.DataType, wanted: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    rows = pa.table({"it's `c`": pa.array(values, given)})
    change = nested_change(given, wanted)
    assert change
    text = render("spark", "nested_value", column="it's `c`", change=change)
    (made,) = sqlglot.transpile(f"SELECT {text} AS v FROM given", read="spark", write="duckdb")
    found = duckdb.connect().register("given", rows).execute(made).to_arrow_table()["v"]
    assert found.to_pylist() == expected
    arrow = conformed({"v": rows[0].combine_chunks()}, pa.schema([("v", wanted)]))
    assert found.to_pylist() == arrow["v"].to_pylist(), "as rows that Spark SQL does not see are written"


def test_values_of_maps_get_them_too() -> None:
    given, wanted = pa.map_(TEXT, pa.list_(GEO)), pa.map_(TEXT, pa.list_(struct(lat=LONG, lon=LONG)))
    text = render("spark", "nested_value", column="m", change=nested_change(given, wanted))
    inner = "CASE WHEN `v1` IS NOT NULL THEN named_struct('lat', `v1`.`lat`, 'lon', CAST(NULL AS long)) END"
    assert text == f"transform_values(`m`, (`k0`, `v0`) -> transform(`v0`, `v1` -> {inner}))"


def test_only_columns_with_other_fields_are_changed() -> None:
    given = {"same": LANDED, "Other": LANDED, "unknown": LANDED, "list": pa.list_(GEO), "wider": struct(a=pa.int32())}
    table = pa.schema({"same": LANDED, "other": TABLE, "list": pa.list_(GEO), "wider": struct(a=LONG)}.items())
    assert list(nested_changes(given, table)) == ["Other"]


def test_fields_that_have_no_type_here_are_null_all_the_same() -> None:
    """Of tables that others made."""
    change = nested_change(GEO, struct(lat=LONG, id=pa.uuid(), code=pa.binary(4), at=pa.timestamp("ns")))
    text = render("spark", "nested_value", column="c", change=change)
    assert "'id', CAST(NULL AS string), 'code', CAST(NULL AS binary), 'at', CAST(NULL AS void)" in text


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (("value", "Geo"), GEO),
        (("value", "geo", "lat"), LONG),
        (("value", "later"), None),
        (("value", "geo", "lat", "x"), None),
    ],
)
def test_type_of_a_landed_column(path: tuple[str, ...], kind: pa.DataType | None) -> None:
    assert type_at(pa.schema([("value", struct(geo=GEO))]), path) == kind


def test_snapshot_is_read_with_the_schema_that_it_was_made_with(lake: IcebergCatalog) -> None:
    before = pa.schema([("c", GEO)])
    lake.create("n.t", iceberg_schema(before))
    lake.require("n.t").append(pa.table({"c": pa.array([{"lat": 1}], GEO)}))
    apply_changes(lake.require("n.t"), [AddColumn(("c", "lon"), LONG)])
    table = lake.require("n.t")
    old = table.metadata.current_snapshot_id
    assert old
    assert arrow_schema(table, old) == before
    table.append(pa.table({"c": pa.array([{"lat": 1}], GEO)}).cast(pa.schema([("c", GEO)])))
    table = lake.require("n.t")
    wider = pa.schema([("c", struct(lat=LONG, lon=LONG))])
    assert arrow_schema(table, table.metadata.current_snapshot_id or 0) == wider

"""Values of a table's rows are compared in the fields that the pipeline file declares."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.destinations.row_values import RowValues
from jobs.spec.columns import RowColumn

TEXT = pa.string()
CITY = pa.struct([("city", TEXT), ("Geo", pa.struct([("lat", pa.int64())]))])
WITH_FAX = pa.struct([("fax", TEXT), ("city", TEXT), ("Geo", pa.struct([("lat", pa.int64())]))])
WITH_ZIP = pa.struct([("city", TEXT), ("geo", pa.struct([("lat", pa.int64()), ("lon", TEXT)])), ("zip", TEXT)])
LANDED = {"fax": "1", "city": "a", "Geo": {"lat": 5}}
FOUND = {"city": "a", "geo": {"lat": 5, "lon": None}, "zip": None}
BY_HAND = {"city": "a", "geo": {"lat": 5, "lon": "x"}, "zip": "9000"}
OTHER = {"city": "a", "geo": {"lat": 6, "lon": None}, "zip": None}


def lists(kind: pa.DataType) -> pa.DataType:
    return pa.list_(kind)


def maps(kind: pa.DataType) -> pa.DataType:
    return pa.map_(TEXT, kind)


@pytest.mark.parametrize(
    ("made", "of"),
    [
        (lambda kind: kind, lambda value: value),
        (lists, lambda value: [value, None]),
        (maps, lambda value: [("k", value)]),
    ],
    ids=["struct", "list", "map"],
)
def test_nested_fields_that_the_file_does_not_declare_are_not_compared(made: Any, of: Any) -> None:
    """Somebody has added `zip` and `lon` to the table; `fax` was declared when the row was landed."""
    column = RowColumn("c", made(CITY), True, ("value", "c"))
    values = RowValues([column])
    held = pa.table({"c": pa.array([of(FOUND), of(BY_HAND), of(OTHER), None], made(WITH_ZIP))})
    found = values.as_read(held)["c"].combine_chunks()
    landed = pa.array([of(LANDED)] * 4, made(WITH_FAX))
    assert values.differ(column, landed, found).tolist() == [False, False, True, True]


def test_a_field_that_nothing_was_landed_of_yet_is_null() -> None:
    column = RowColumn("c", CITY, True, ("value", "c"))
    values = RowValues([column])
    found = values.as_read(pa.table({"c": pa.array([{"city": "a", "Geo": None}], CITY)}))["c"].combine_chunks()
    landed = pa.array([{"city": "a"}], pa.struct([("city", TEXT)]))
    assert values.differ(column, landed, found).tolist() == [False]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
@pytest.mark.parametrize(
    ("nested", "of"),
    [
        (lambda kind: pa.struct([("at", kind)]), lambda value: {"at": value}),
        (lists, lambda value: [value]),
        (maps, lambda value: [("k", value)]),
    ],
    ids=["struct", "list", "map"],
)
def test_nested_dates_beyond_those_of_python_are_compared(kind: pa.DataType, nested: Any, of: Any) -> None:
    """A transform can make them. A row beside them is compared as before, whatever the other side of it has."""
    day = 1 if kind == pa.date32() else 86_400_000_000
    beyond, plain = 3_000_000 * day, 20_000 * day

    def rows(*numbers: int) -> pa.Array:
        numbered = pa.int32() if kind == pa.date32() else pa.int64()
        return pa.array([of(number) for number in numbers], nested(numbered)).cast(nested(kind))

    column = RowColumn("c", nested(kind), True, ("value", "c"))
    values = RowValues([column])
    found = values.as_read(pa.table({"c": rows(beyond, beyond + day, plain, plain, beyond)}))["c"].combine_chunks()
    landed = rows(beyond, beyond, plain, plain + day, plain)
    assert values.differ(column, landed, found).tolist() == [False, True, False, True, True]
    assert values.differ(column, landed.slice(2, 2), found.slice(2, 2)).tolist() == [False, True]

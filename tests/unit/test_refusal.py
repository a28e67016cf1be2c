"""Which rows a table refuses, which are adjusted, and what is reported of them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.dead_letters.refused import ranges
from jobs.destinations.clickhouse.columns import table_column
from jobs.destinations.clickhouse.limits import limited_column
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.limits import DAY, Limits, Range
from jobs.destinations.refusal import (
    BATCH,
    OFFSET,
    PARTITION,
    SENT_DELETED,
    TOPIC,
    Fit,
    LimitedColumn,
    Refusal,
    check_limits,
)
from jobs.destinations.registry import kind_of
from jobs.schema.types import parse_type
from jobs.spec.columns import RowColumn
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import OutOfRange
from resources.errors import BadRecords
from tests.kit import specs

LIMITS = Limits({"integer": Range(0, 255), "date": Range(0, 100)}, collections=False, outside="too much")
LIST = pa.list_(pa.field("element", pa.int64()))
COLUMNS = (
    LimitedColumn("c0", "id", pa.int64(), "UInt8", nullable=False, is_key=True, limits=LIMITS),
    LimitedColumn("c1", "n", pa.int64(), "UInt8", nullable=True, is_key=False, limits=LIMITS),
    LimitedColumn("c2", "day", pa.date32(), "Date", nullable=True, is_key=False, limits=LIMITS, fixed=True),
    LimitedColumn("c3", "tags", LIST, "Array(UInt8)", nullable=True, is_key=False, limits=LIMITS),
)
FINE: dict[str, Any] = {"c0": 1, "c1": 1, "c2": None, "c3": []}


def fit(rows: list[dict[str, Any]], out_of_range: OutOfRange = "refuse") -> Fit:
    types = {column.name: column.declared for column in COLUMNS}
    arrays = {name: pa.array([{**FINE, **row}[name] for row in rows], kind) for name, kind in types.items()}
    many = len(rows)
    places = {TOPIC: ["t"] * many, PARTITION: [0] * many, OFFSET: list(range(many)), BATCH: [7] * many}
    deleted = [int(row.get("deleted", 0)) for row in rows]
    table = pa.table({**arrays, **places, SENT_DELETED: deleted})
    return Refusal("kind a.b", COLUMNS, "quarantine", out_of_range, "me", {"t": "id-of-t"}).fit(table)


def refused(found: Fit) -> list[tuple[int, str, str]]:
    return [(row["offset"], row["column"], row["reason"]) for row in found.dead_letters.to_pylist()]


def test_one_dead_letter_of_each_row_that_does_not_fit() -> None:
    found = fit([{}, {"c1": 300, "c3": None}, {"c0": -1, "c1": -1}, {"c3": None}, {}])
    assert found.rows[OFFSET].to_pylist() == [0, 4]
    assert refused(found) == [
        (2, "id", "too much"),
        (1, "n", "too much"),
        (3, "tags", "null in an array, map or tuple column"),
    ]
    dead_letter = found.dead_letters.to_pylist()[1]
    known = {name: dead_letter[name] for name in ("topic", "topic_id", "batch", "declared", "wanted", "op", "attempt")}
    assert list(known.values()) == ["t", "id-of-t", 7, "long", "UInt8", "upsert", "me"]
    assert json.loads(dead_letter["key"]) == {"id": 1}
    assert json.loads(dead_letter["row"]) == {"id": 1, "n": 300, "day": None, "tags": None}


def test_a_delete_is_judged_by_its_key_alone() -> None:
    found = fit([{"c1": 300, "deleted": 1}, {"c0": 300, "deleted": 1}])
    assert (found.rows[OFFSET].to_pylist(), refused(found)) == ([0], [(1, "id", "too much")])
    assert found.dead_letters["op"].to_pylist() == ["delete"]


@pytest.mark.parametrize(("how", "value"), [("clamp", 255), ("null", None)])
def test_values_are_clamped_or_become_null_but_not_keys_and_the_order(how: OutOfRange, value: int | None) -> None:
    beyond = dt.date(2000, 1, 1)
    found = fit([{"c1": 300}, {"c0": 300}, {"c2": beyond}, {"c1": 300, "c3": None}, {}], how)
    assert found.rows.select(["c1", OFFSET]).to_pylist() == [{"c1": value, OFFSET: 0}, {"c1": 1, OFFSET: 4}]
    assert found.out_of_range == 1
    assert [column for _, column, _ in refused(found)] == ["id", "day", "tags"]


def test_limits_are_those_of_all_batches_that_are_merged() -> None:
    spec = _spec("kind: clickhouse", dead_letters={"max_records": 2})
    check_limits(spec, "t", refused=4, changes=10, batches=2)
    with pytest.raises(BadRecords, match=r"5 of 10 rows cannot be stored, more than `dead_letters\.max_records: 2`"):
        check_limits(spec, "t", refused=5, changes=10, batches=2)


INSTANT = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("declared", "named", "low", "high"),
    [
        (pa.int64(), "UInt8", 0, 255),
        (pa.int64(), "Nullable(Int16)", -(2**15), 2**15 - 1),
        (pa.int64(), "Decimal(5, 2)", -999, 999),
        (pa.int64(), "NUMERIC(5, 2)", -999, 999),
        (pa.int64(), "smallint", -(2**15), 2**15 - 1),
        (pa.decimal128(20, 1), "Decimal(5, 2)", Decimal("-999.9"), Decimal("999.9")),
        (pa.decimal128(38, 0), "Decimal(35, 2)", 1 - 10**33, 10**33 - 1),
        (pa.date32(), "Date", 0, 65535),
        (INSTANT, "DateTime('UTC')", 0, (2**32 - 1) * 1_000_000),
        (INSTANT, "DateTime64(9)", -25567 * DAY, 2**63 // 1000),
        (INSTANT, "DateTime64(3)", -25567 * DAY, 120530 * DAY - 1),
        (pa.date32(), None, -25567, 120529),
        (pa.float64(), "Int8", -128, 127),
        (pa.float32(), "Decimal(5, 2)", Decimal("-999.99"), Decimal("999.99")),
    ],
)
def test_ranges_of_clickhouse(declared: pa.DataType, named: str | None, low: object, high: object) -> None:
    column = _of_clickhouse(declared, named)
    assert column.limits.range_of(declared) == Range(low, high)  # type: ignore[arg-type]


@pytest.mark.parametrize("named", ["Int32", "Nullable(UInt8)", "Decimal(5, 2)", "Date"])
def test_texts_that_become_another_type_are_left_to_the_server(named: str) -> None:
    """Whatever `out_of_range` says: as a text, a number is neither larger nor smaller than another."""
    column = _of_clickhouse(pa.string(), named)
    rows = _rows_of(pa.array(["7", "700", "seven", None]))
    found = Refusal("t", (column,), "quarantine", "clamp", "me", {}).fit(rows)
    assert (found.rows["n"].to_pylist(), found.out_of_range) == (["7", "700", "seven", None], 0)


@pytest.mark.parametrize("around", ["{}", "array<{}>", "struct<a: {}>", "map<string,{}>", "map<{},string>"])
@pytest.mark.parametrize(("inner", "raw", "beyond"), [("timestamp", pa.int64(), 2**60), ("date", pa.int32(), 10**8)])
def test_a_dead_letter_has_times_that_python_has_not(around: str, inner: str, raw: pa.DataType, beyond: int) -> None:
    """A transform makes such ones: as numbers, in microseconds or days."""
    kind, value = parse_type(around.format(inner))[0], pa.array([beyond], raw).cast(parse_type(inner)[0])
    one = pa.array([0, 1], pa.int32())
    made: dict[str, Callable[[], pa.Array]] = {
        "array": lambda: pa.ListArray.from_arrays(one, value),
        "struct": lambda: pa.StructArray.from_arrays([value], ["a"]),
        "map<string": lambda: pa.MapArray.from_arrays(one, pa.array(["k"]), value),
        "map<{}": lambda: pa.MapArray.from_arrays(one, value, pa.array(["v"])),
    }
    values = next((make() for name, make in made.items() if around.startswith(name)), value).cast(kind)
    years = Limits({"timestamp": Range(0, 2**50), "date": Range(0, 10**6)})
    column = LimitedColumn("n", "n", kind, "T", nullable=True, is_key=False, limits=years)
    found = Refusal("t", (column,), "quarantine", "refuse", "me", {}).fit(_rows_of(values))
    assert str(beyond) in found.dead_letters["row"][0].as_py()


def test_what_cannot_be_adjusted_is_not_called_a_time() -> None:
    column = replace(_of_clickhouse(pa.int64(), "UInt8"), is_key=True)
    found = Refusal("t", (column,), "quarantine", "clamp", "me", {}).fit(_rows_of(pa.array([300])))
    assert found.dead_letters["reason"].to_pylist() == ["the value is out of the type's range"]


def _of_clickhouse(declared: pa.DataType, named: str | None) -> LimitedColumn:
    types = {"n": named} if named else {}
    table = ClickHouseTable(kind="clickhouse", table="a.b", mode="append", column_types=types, out_of_range="clamp")
    return limited_column(table_column(RowColumn("n", declared, True, ("value", "n")), types), table, None)


def _rows_of(values: pa.Array) -> pa.Table:
    many = len(values)
    return pa.table({"n": values, TOPIC: ["t"] * many, PARTITION: [0] * many, OFFSET: range(many), BATCH: [7] * many})


def _spec(table: str, columns: dict[str, str] | None = None, **parts: object) -> PipelineSpec:
    options = dict(part.split(": ") for part in table.split(", "))
    return specs.spec(
        specs.table(mode="upsert") | options, columns={**specs.ID, **(columns or {})}, key=specs.ID, **parts
    )


@pytest.mark.parametrize(
    ("table", "type_", "warned"),
    [
        ("kind: clickhouse", "array<long>", True),
        ("kind: clickhouse", "array<long> not null", False),
        ("kind: clickhouse", "struct<a: map<string,long>> not null", True),
        ("kind: clickhouse, null_collections: empty", "array<long>", False),
        ("kind: clickhouse", "date", False),
        ("kind: bigquery", "array<long>", True),
        ("kind: bigquery", "array<long not null>", False),
        ("kind: bigquery", "struct<a: array<string>>", True),
        ("kind: bigquery, null_elements: drop", "array<long>", False),
        ("kind: bigquery", "map<string,long>", False),
        ("kind: iceberg", "array<long>", False),
    ],
)
def test_columns_with_rows_that_are_certain_to_be_refused(table: str, type_: str, warned: bool) -> None:
    spec = _spec(table, {"odd": type_})
    (entry,) = spec.tables
    found = list(kind_of(entry).warnings(spec, entry))
    assert len(found) == warned
    assert all("column odd" in text and "Fix: set `null_" in text for text in found)


def test_batches_near_each_other_are_replayed_at_once() -> None:
    assert ranges([3, 1, 2, 20, 100]) == [(1, 20), (100, 100)]


def test_batches_that_cannot_be_replayed_stop_no_others() -> None:
    assert ranges([3, 1, 2, 20, 100], split_at=3) == [(1, 2), (3, 20), (100, 100)]

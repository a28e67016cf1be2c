"""Values that a system cannot hold are found, and adjusted, wherever they are nested."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.destinations.limits import DAY, Limits, Range, brought_in_range, null_collections, out_of_range

DAYS = Range(-25567, 120529)
LIMITS = Limits({"date": DAYS, "timestamp": Range(-25567 * DAY, 120530 * DAY - 1)}, collections=False)
LIST = pa.list_(pa.field("element", pa.int64()))
DEEP = pa.list_(pa.field("element", LIST))
MAP = pa.map_(pa.string(), pa.field("value", LIST))
STRUCT = pa.struct([pa.field("a", LIST), pa.field("d", pa.date32())])


ELEMENTS = Limits(elements=False)


def places(mask: np.ndarray[Any, Any] | None) -> list[int]:
    return [] if mask is None else mask.nonzero()[0].tolist()


@pytest.mark.parametrize(
    ("kind", "limits", "values", "flawed"),
    [
        (LIST, LIMITS, [[1, None], [], None, [2]], [2]),
        (DEEP, LIMITS, [[[1]], [[1], None], [], None], [1, 3]),
        (MAP, LIMITS, [[("a", [1])], [("a", None)], None], [1, 2]),
        (STRUCT, LIMITS, [{"a": [1], "d": None}, {"a": None, "d": None}, None], [1, 2]),
        (pa.int64(), LIMITS, [1, None], []),
        (LIST, ELEMENTS, [[1, None], [], None, [2]], [0]),
        (DEEP, ELEMENTS, [[[1]], [[1], None], [[None]], None], [1, 2]),
        (MAP, ELEMENTS, [[("a", [1])], [("a", None)], [("a", [None])], None], [2]),
        (STRUCT, ELEMENTS, [{"a": [None], "d": None}, {"a": None, "d": None}, None], [0]),
    ],
)
def test_nulls_in_collections(kind: pa.DataType, limits: Limits, values: list[object], flawed: list[int]) -> None:
    array = pa.array(values, kind)
    assert places(null_collections(array, limits)) == flawed
    shifted = pa.concat_arrays([array.slice(0, 1), array])[1:]
    assert places(null_collections(shifted, limits)) == flawed


DATE = pa.date32()
INSTANT = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "values", "flawed"),
    [
        (DATE, [dt.date(1900, 1, 1), dt.date(2299, 12, 31), None], []),
        (DATE, [dt.date(1899, 12, 31), dt.date(2300, 1, 1), dt.date(2000, 1, 1)], [0, 1]),
        (INSTANT, [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2299, 12, 31, 23, 59, 59, 999999, dt.UTC)], []),
        (INSTANT, [dt.datetime(1899, 12, 31, tzinfo=dt.UTC), dt.datetime(2300, 1, 1, tzinfo=dt.UTC), None], [0, 1]),
        (pa.list_(DATE), [[dt.date(2000, 1, 1)], [dt.date(2000, 1, 1), dt.date(9999, 1, 1)], None], [1]),
        (STRUCT, [{"a": [], "d": dt.date(1, 1, 1)}, None, {"a": [], "d": None}], [0]),
    ],
)
def test_out_of_range(kind: pa.DataType, values: list[object], flawed: list[int]) -> None:
    assert places(out_of_range(pa.array(values, kind), LIMITS)) == flawed


LOW, HIGH, EVER = dt.date(1900, 1, 1), dt.date(2299, 12, 31), dt.date(9999, 12, 31)
DATES = pa.list_(pa.field("element", DATE, nullable=False))
DATE_MAP = pa.map_(pa.string(), pa.field("value", DATE))
SMALL = Limits({"integer": Range(0, 255), "decimal": Range(Decimal("-9.99"), Decimal("9.99"))})


@pytest.mark.parametrize(
    ("kind", "values", "clamped", "nulled"),
    [
        (DATE, [EVER, dt.date(1, 1, 1), LOW, None], [HIGH, LOW, LOW, None], [None, None, LOW, None]),
        (pa.list_(DATE), [[EVER, LOW], None, []], [[HIGH, LOW], None, []], [[None, LOW], None, []]),
        (DATES, [[EVER]], [[HIGH]], [[EVER]]),
        (STRUCT, [{"a": [1], "d": EVER}, None], [{"a": [1], "d": HIGH}, None], [{"a": [1], "d": None}, None]),
        (DATE_MAP, [[("k", EVER)], None], [[("k", HIGH)], None], [[("k", None)], None]),
    ],
)
def test_brought_in_range(kind: pa.DataType, values: list[object], clamped: list[object], nulled: list[object]) -> None:
    array = pa.concat_arrays([pa.array(values[:1], kind), pa.array(values, kind)])[1:]
    assert brought_in_range(array, LIMITS, "clamp", nullable=True).to_pylist() == clamped
    assert brought_in_range(array, LIMITS, "null", nullable=True).to_pylist() == nulled


@pytest.mark.parametrize(
    ("kind", "values", "clamped"),
    [
        (pa.int64(), [-1, 300, 7], [0, 255, 7]),
        (pa.decimal128(10, 2), [Decimal("10.00"), Decimal("-10.01"), None], [Decimal("9.99"), Decimal("-9.99"), None]),
        # Whatever has so few digits is within the bounds.
        (pa.decimal128(2, 2), [Decimal("0.99")], [Decimal("0.99")]),
    ],
)
def test_numbers_in_range(kind: pa.DataType, values: list[object], clamped: list[object]) -> None:
    assert brought_in_range(pa.array(values, kind), SMALL, "clamp", nullable=False).to_pylist() == clamped


FLOATS = np.finfo(np.float32)


@pytest.mark.parametrize(
    ("kind", "bounds", "values", "clamped"),
    [
        (
            pa.float64(),
            Range(-(2**31), 2**31 - 1),
            [1e12, -1e12, float("-inf"), 0.5],
            [2**31 - 1, -(2**31), -(2**31), 0.5],
        ),
        # Of the bounds that are no floats themselves, the next ones within.
        (pa.float64(), Range(-(2**63), 2**63 - 1), [1e30, -1e30], [2**63 - 1024, -(2**63)]),
        (pa.float32(), Range(-(2**31), 2**31 - 1), [1e12, -1e12], [2**31 - 128, -(2**31)]),
        (pa.float64(), Range(Decimal("-9.99"), Decimal("9.99")), [10.0, -10.0], [9.99, -9.99]),
        (pa.float32(), Range(0, 2**256 - 1), [float("inf"), -1.0], [FLOATS.max, 0.0]),
    ],
)
def test_floats_in_range(kind: pa.DataType, bounds: Range, values: list[object], clamped: list[object]) -> None:
    limits = Limits({"float": bounds})
    array = pa.array(values, kind)
    assert brought_in_range(array, limits, "clamp", nullable=True).to_pylist() == clamped
    assert brought_in_range(array, limits, "null", nullable=True).null_count == len(values) - values.count(0.5)
    nan = pa.array([float("nan")], kind)
    assert out_of_range(nan, limits) is None


def test_a_time_that_has_no_text_is_out_of_range() -> None:
    beyond = pa.array([2**62], pa.int64()).cast(INSTANT)
    assert brought_in_range(beyond, LIMITS, "clamp", nullable=False).cast(pa.int64()).to_pylist() == [120530 * DAY - 1]

"""Values that ClickHouse would store as others are found, wherever they are nested."""

from __future__ import annotations

import datetime as dt
from collections.abc import ItemsView

import pyarrow as pa
import pytest

from jobs.destinations.clickhouse.unrepresentable import null_collections, out_of_range

LIST = pa.list_(pa.field("element", pa.int64()))
DEEP = pa.list_(pa.field("element", LIST))
MAP = pa.map_(pa.string(), pa.field("value", LIST))
STRUCT = pa.struct([pa.field("a", LIST), pa.field("d", pa.date32())])


@pytest.mark.parametrize(
    ("kind", "values", "flawed"),
    [
        (LIST, [[1, None], [], None, [2]], [2]),
        (DEEP, [[[1]], [[1], None], [], None], [1, 3]),
        (MAP, [{"a": [1]}.items(), {"a": None}.items(), None], [1, 2]),
        (STRUCT, [{"a": [1], "d": None}, {"a": None, "d": None}, None], [1, 2]),
        (pa.int64(), [1, None], []),
    ],
)
def test_null_collections(kind: pa.DataType, values: list[object], flawed: list[int]) -> None:
    array = pa.array([list(v) if isinstance(v, ItemsView) else v for v in values], kind)
    mask = null_collections(array)
    assert ([] if mask is None else mask.nonzero()[0].tolist()) == flawed
    shifted = pa.concat_arrays([array.slice(0, 1), array])[1:]
    mask = null_collections(shifted)
    assert ([] if mask is None else mask.nonzero()[0].tolist()) == flawed


DAY = pa.date32()
INSTANT = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "values", "flawed"),
    [
        (DAY, [dt.date(1900, 1, 1), dt.date(2299, 12, 31), None], []),
        (DAY, [dt.date(1899, 12, 31), dt.date(2300, 1, 1), dt.date(2000, 1, 1)], [0, 1]),
        (INSTANT, [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2299, 12, 31, 23, 59, 59, 999999, dt.UTC)], []),
        (INSTANT, [dt.datetime(1899, 12, 31, tzinfo=dt.UTC), dt.datetime(2300, 1, 1, tzinfo=dt.UTC), None], [0, 1]),
        (pa.list_(DAY), [[dt.date(2000, 1, 1)], [dt.date(2000, 1, 1), dt.date(9999, 1, 1)], None], [1]),
        (STRUCT, [{"a": [], "d": dt.date(1, 1, 1)}, None, {"a": [], "d": None}], [0]),
    ],
)
def test_out_of_range(kind: pa.DataType, values: list[object], flawed: list[int]) -> None:
    mask = out_of_range(pa.array(values, kind))
    assert ([] if mask is None else mask.nonzero()[0].tolist()) == flawed

"""Values of declared types that the columns of a BigQuery table do not hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.destinations.bigquery.columns import destination_columns
from jobs.destinations.bigquery.direct_load import takes_landed_rows
from jobs.destinations.bigquery.held import held_columns
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.held_values import DAY, out_of_range
from tests.kit import specs

LAST_DAY = 2932896


@pytest.mark.parametrize(
    ("declared", "wanted", "first", "last"),
    [
        ("int", "DATE", -719162, LAST_DAY),
        ("int", "TIME", 0, DAY // 1000 - 1),
        ("long", "TIME", 0, DAY - 1),
        ("long", "NUMERIC", None, None),
    ],
)
def test_numbers_that_become_no_date_or_time(declared: str, wanted: str, first: int | None, last: int | None) -> None:
    entry = specs.table("bigquery", "append", "d.dest", column_types={"n": wanted})
    spec = specs.spec(entry, columns={"id": "long", "n": declared})
    (table,) = spec.tables
    assert isinstance(table, BigQueryTable)
    columns = destination_columns(spec, table, "test")
    held = next(c for c in held_columns(spec, table, columns) if c.label == "n")
    assert held.may_refuse is (first is not None)
    assert takes_landed_rows(spec, table, columns) is (first is None), "files would not be judged"
    if first is not None and last is not None:
        found = out_of_range(pa.array([first, last, first - 1, last + 1], held.declared), held.held)
        assert found is not None
        assert found.tolist() == [False, False, True, True]

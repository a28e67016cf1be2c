"""Expected values as BigQuery would store them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest
from google.cloud.bigquery import ArrayQueryParameter

from jobs.destinations.bigquery.columns import destination_columns
from jobs.destinations.bigquery.limits import limited_columns
from jobs.destinations.bigquery.read import BigQueryValues
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.spec.columns import row_columns
from resources.bigquery import BigQuery
from tests.kit import specs


@dataclass
class Service:
    """Of BigQuery what converts values: each is stored as `<value>!`."""

    asked: list[list[str]] = field(default_factory=list)

    def arrow(self, _: str, __: str, arrays: list[ArrayQueryParameter]) -> pa.Table:
        (given,) = (array.values for array in arrays)
        assert len(json.dumps(arrays[0].to_api_repr())) < 10_000_000
        self.asked.append(given)
        return pa.table({"stored": [f"{value}!" for value in given]})


def stored(declared: str, wanted: str, values: list[Any]) -> tuple[list[object], Service]:
    entry, service = specs.table("bigquery", "append", "d.t", column_types={"n": wanted}), Service()
    spec = specs.spec(entry, columns={"id": "long", "n": declared})
    table = specs.entry(spec, BigQueryTable)
    columns, own = row_columns(spec, table), destination_columns(spec, table)
    limited, asked = limited_columns(spec, table, own), cast(BigQuery, service)
    made = BigQueryValues(columns, table.column_types, limited, bigquery=asked, table=table, own=own)
    (column,) = (c for c in columns if c.name == "n")
    return list(made.stored(column, pa.array(values, column.type))), service


@pytest.mark.parametrize(
    ("declared", "wanted", "values", "expected"),
    [
        ("string", "DATE", ["2024-01-01", None, "2024-01-01"], ["2024-01-01!", None, "2024-01-01!"]),
        ("int", "DATE", [0, 2932897, None], ["0!", None, None]),
        ("long", "TIME", [0, -1, 2**62], ["0!", None, None]),
    ],
)
def test_values_that_the_table_refuses_are_null(
    declared: str, wanted: str, values: list[Any], expected: list[str | None]
) -> None:
    """Of those that are text BigQuery says it."""
    assert stored(declared, wanted, values)[0] == expected


def test_each_question_about_values_fits_into_a_request() -> None:
    documents = [json.dumps({"n": n, "text": "x" * 12_000}) for n in range(1000)]
    found, service = stored("string", "JSON", documents)
    assert found == [f"{document}!" for document in documents]
    assert len(service.asked) == 2

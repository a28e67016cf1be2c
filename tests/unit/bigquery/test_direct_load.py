"""Which tables take landed rows as they are, and which files BigQuery reads by itself."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.destinations.bigquery.columns import destination_columns
from jobs.destinations.bigquery.direct_load import MOST_FILES, can_read, takes_landed_rows
from jobs.destinations.bigquery.spec import BigQueryTable
from tests.kit import specs

COLUMNS = {
    "id": "long",
    "name": "string",
    "amount": "decimal(12,2)",
    "day": "date",
    "at": "timestamp",
    "place": "struct<x: double, on: boolean>",
}


def takes(
    columns: dict[str, str] | None = None,
    changes: dict[str, Any] | None = None,
    value: dict[str, Any] | None = None,
    **options: object,
) -> bool:
    spec = specs.spec(
        specs.table("bigquery", "upsert_delete") | options,
        columns={**COLUMNS, **(columns or {})},
        key=specs.ID,
        value=value,
        source={"topics": ["t", "u"]},
        changes={"order_by": "arrival", **(changes or {})},
    )
    table = specs.entry(spec, BigQueryTable)
    found = destination_columns(spec, table)
    return takes_landed_rows(spec, table, found)


def test_plain_rows_and_change_data_are_taken_as_they_are() -> None:
    assert takes()
    assert takes(mode="append")
    assert takes({"op": "string"}, {"op": {"field": "op"}})
    assert takes(value={"envelope": "debezium"})
    assert takes(sanitize_names=True), "no name changes"


@pytest.mark.parametrize("kind", ["binary", "timestamp_ntz", "array<int>", "map<string,int>", "decimal(38,20)"])
def test_types_that_loads_read_in_their_own_way(kind: str) -> None:
    assert not takes({"odd": kind})
    assert not takes({"odd": f"struct<inside: {kind}>"})


@pytest.mark.parametrize(
    "parts",
    [
        {"changes": {"order_by": "amount"}, "mode": "upsert"},
        {"route": {"topics": ["t", "u"]}},
        {"metadata_columns": ["offset"]},
        {"columns": {"a-b": "int"}, "sanitize_names": True},
        {"columns": {"inside": "struct<a: struct<`b-c`: int>>"}, "sanitize_names": True},
    ],
    ids=str,
)
def test_rows_of_another_shape_are_sent(parts: dict[str, Any]) -> None:
    assert not takes(**parts)


def test_only_files_where_bigquery_reads() -> None:
    assert can_read(["gs://lake/a.parquet", "gs://lake/b.parquet"], ["gs://"])
    assert not can_read(["gs://lake/a.parquet", "s3://lake/b.parquet"], ["gs://"])
    assert not can_read(["gs://other/a.parquet"], ["gs://lake/"])
    assert not can_read(["gs://lake/a.parquet"], [])
    assert not can_read([], ["gs://"])
    assert not can_read(["gs://a"] * (MOST_FILES + 1), ["gs://"])

"""What a pipeline file may say about a BigQuery table. How mistakes are reported: mistakes.yaml of tests/unit/spec."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from jobs.destinations.bigquery.columns import destination_columns
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.registry import kind_of
from jobs.spec.pipeline import PipelineSpec
from tests.kit import specs

ALLOWED: list[dict[str, object]] = [
    {},
    {"merge_interval_seconds": 60},
    {"merge_interval_seconds": None, "merge_records_threshold": 1},
    {"merge_interval_seconds": 60, "merge_records_threshold": 1000},
    {"time_partitioning": "HOUR"},
    {"time_partitioning": "YEAR", "partition_time": "record", "partition_expiration_days": 3},
    {"time_partitioning": "DAY", "partition_time": "ingestion", "require_partition_filter": True},
    {"time_partitioning": "MONTH", "partition_column": "day", "partition_expiration_days": 3},
    {"time_partitioning": "DAY", "partition_column": "day", "require_partition_filter": True, "cluster_by": ["id"]},
    {"cluster_by": ["id", "name", "day", "at"]},
    {"labels": {"team": "air-1", "empty": ""}},
    {"intermediate_suffix": "landing_zone"},
]
REFUSED: list[tuple[dict[str, object], str]] = [
    ({"merge_interval_seconds": -1}, "greater than or equal to 0"),
    ({"merge_records_threshold": 0}, "greater than 0"),
    ({"partition_column": "day", "partition_expiration_days": 1}, "partition_expiration_days: it needs"),
    ({"partition_expiration_days": 0, "time_partitioning": "DAY"}, "greater than 0"),
    ({"partition_time": "record"}, "partitions by ingestion time"),
    ({"partition_time": "ingestion", "partition_column": "day"}, "partitions by ingestion time"),
    (
        {"partition_time": "record", "partition_column": "day", "time_partitioning": "DAY"},
        "partitions by ingestion time",
    ),
    ({"time_partitioning": "WEEK"}, "HOUR"),
    ({"labels": {"team": "X"}}, "lower case"),
    ({"table": "no_dataset"}, "pattern"),
    ({"table": "p.d.t"}, "pattern"),
    ({"intermediate_suffix": "a-b"}, "pattern"),
    ({"mode": "overwrite"}, "append"),
    ({"column_types": {"name": "VARCHAR"}}, "JSON"),
    ({"null_elements": "keep"}, "refuse"),
]
TABLE = specs.table("bigquery", "upsert")


@pytest.mark.parametrize("options", ALLOWED, ids=str)
def test_allowed(options: dict[str, object]) -> None:
    found = BigQueryTable.model_validate(TABLE | options)
    for name, value in options.items():
        assert getattr(found, name) == value


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=str)
def test_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError) as problem:
        BigQueryTable.model_validate(TABLE | options)
    assert says in str(problem.value)


@pytest.mark.parametrize(
    ("interval", "options", "warned"),
    [
        ("5s", {}, True),
        ("5s", {"merge_interval_seconds": 30}, True),
        ("5s", {"merge_interval_seconds": 60}, False),
        ("60s", {}, False),
        ("5s", {"merge_interval_seconds": None, "merge_records_threshold": 1000}, False),
        (None, {}, False),
    ],
)
def test_more_loads_than_bigquery_takes_are_warned_of(
    interval: str | None, options: dict[str, object], warned: bool
) -> None:
    often = {"interval": interval} if interval else {}
    found = specs.spec(TABLE | options, key="id", **often)
    warnings = list(kind_of(found.tables[0]).warnings(found, found.tables[0]))
    assert len(warnings) == warned
    assert all("1,500 loads of a table a day" in text for text in warnings)


def test_names_are_sanitised_where_that_is_asked_for() -> None:
    odd = {"id": "long", "a b": "string", "1st": "struct<`x-y`: int>"}
    found = specs.spec(TABLE | {"sanitize_names": True}, columns=odd, key="id")
    assert isinstance(found.tables[0], BigQueryTable)
    columns = {c.source[-1]: c.field for c in destination_columns(found, found.tables[0])}
    assert columns["a b"].name == "a_b"
    assert columns["1st"].name == "_1st"
    assert [f.name for f in columns["1st"].fields] == ["x_y"]


@pytest.mark.parametrize("around", ["struct<a: {}>", "array<struct<a: {}>>", "map<string,{}>"])
def test_columns_that_are_too_deep_for_the_staging_table_are_refused(around: str) -> None:
    """There each is inside of a struct, and BigQuery takes 15 of them."""

    def mistakes(depth: int) -> list[str]:
        kind = around.format("struct<a: {}>".format("long"))
        for _ in range(depth - 2):
            kind = f"struct<a: {kind}>"
        found = specs.document(TABLE, columns={"id": "long", "deep": kind}, key="id")
        try:
            PipelineSpec.model_validate(found)
        except ValidationError as problem:
            return [str(problem)]
        return []

    assert mistakes(14) == []
    (message,) = mistakes(15)
    assert "deep has structs, or arrays and maps of them, 15 deep, and BigQuery takes 14" in message


@pytest.mark.parametrize(
    ("kind", "key", "allowed"),
    [
        ("bigquery", "struct<a: long, b: struct<c: string>>", True),
        ("bigquery", "struct<a: long, b: struct<c: double>>", False),
        ("bigquery", "struct<a: array<long>>", False),
        ("bigquery", "array<long>", False),
        ("iceberg", "struct<a: long>", False),
    ],
)
def test_struct_keys_are_for_bigquery_alone(kind: str, key: str, allowed: bool) -> None:
    document = specs.document(specs.table(kind, "upsert"), columns={"k": key}, key="k")
    if allowed:
        assert PipelineSpec.model_validate(document).changes.key
    else:
        with pytest.raises(ValidationError, match="cannot identify a row"):
            PipelineSpec.model_validate(document)

"""What `docs/pipeline-file.md` says of a column's type in each system is the type of a column that we create."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from jobs.destinations.bigquery import columns as bigquery
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.clickhouse import columns as clickhouse
from jobs.destinations.iceberg.columns import with_times_as_text
from jobs.iceberg.schema import iceberg_schema
from jobs.schema import types
from jobs.schema.types import parse_columns
from jobs.spec.columns import RowColumn
from tests.kit.guides import DOCS

BIGQUERY = BigQueryTable(kind="bigquery", table="d.t", mode="append")
_STANDARD = {"BOOLEAN": "BOOL", "INTEGER": "INT64", "FLOAT": "FLOAT64"}


def rows() -> list[list[str]]:
    """The cells of the table, without their backticks."""
    below = (DOCS / "pipeline-file.md").read_text().split("### Column types in each system\n", maxsplit=1)[1]
    found = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert found
    return [[cell.strip(" `") for cell in line.strip("|\n").split(" | ")] for line in found[0].splitlines()[2:]]


def standard(field: Any) -> str:
    """The type of a BigQuery column as its SQL names it."""
    kind = _STANDARD.get(field.field_type, field.field_type)
    if kind == "RECORD":
        kind = f"STRUCT<{', '.join(f'{child.name} {standard(child)}' for child in field.fields)}>"
    return f"ARRAY<{kind}>" if field.mode == "REPEATED" else kind


def as_iceberg_says(kind: object) -> str:
    """Without the ids of nested fields, and what is required in them."""
    return re.sub(r"\b\d+: (\w+): (?:optional|required) ", r"\1: ", str(kind))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_declared_type_is_this_type_in_each_system(row: list[str]) -> None:
    declared, iceberg, in_clickhouse, in_bigquery = row
    column = RowColumn.of(parse_columns({"c": declared}).field("c"), False, ("value", "c"))
    in_iceberg = pa.schema([("c", with_times_as_text(column).table_type)])
    assert as_iceberg_says(iceberg_schema(in_iceberg).fields[0].field_type) == iceberg
    assert clickhouse.table_column(column, {}).type == in_clickhouse
    assert standard(bigquery.table_column(column, "c", BIGQUERY).field) == in_bigquery


def test_every_declared_type_has_a_row() -> None:
    declared = {row[0].split("<")[0].split("(")[0] for row in rows()}
    assert declared == {*types._SCALARS, "decimal", "fixed", "array", "map", "struct"} - {"bigint"}

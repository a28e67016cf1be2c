"""Which pipelines keep what a change leaves out, which columns that may be, and why others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.changes.columns import UNCHANGED, landing_schema
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.unchanged_columns import envelope_rules, unavailable, unchanged_columns
from tests.kit import specs

ICEBERG = specs.table(mode="upsert_delete")
BIGQUERY = specs.table("bigquery", "upsert")
CLICKHOUSE = specs.table("clickhouse", "upsert_delete")
COLUMNS = {
    "id": "string",
    "name": "string",
    "needed": "string not null",
    "raw": "binary",
    "tags": "array<string>",
    "inner": "struct<text: string>",
    "version": "long",
}


def spec(*tables: dict[str, Any], envelope: Any = "debezium", **parts: Any) -> PipelineSpec:
    return specs.spec(*tables, columns=COLUMNS, key={"id": "string"}, value={"envelope": envelope}, **parts)


KEEP = {"kind": "debezium", "unavailable": "keep"}
APPEND = {**ICEBERG, "mode": "append"}
TRANSFORMED = {"transform": "select * from records"}


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (spec(ICEBERG), "keep"),
        (spec(ICEBERG, BIGQUERY, envelope="debezium_flat"), "keep"),
        (spec(ICEBERG, changes={"order_by": "arrival"}), "keep"),
        (spec(ICEBERG, {**BIGQUERY, "mode": "append"}), "refuse"),
        (spec({**ICEBERG, "mode": "delete"}), "refuse"),
        (spec(ICEBERG, CLICKHOUSE), "refuse"),
        (spec(ICEBERG, changes={"order_by": "version"}), "refuse"),
        (spec(ICEBERG, source=TRANSFORMED), "refuse"),
        (spec(ICEBERG, envelope="dms"), "refuse"),
        (spec(ICEBERG, envelope={"kind": "debezium", "unavailable": "null"}), "null"),
        (spec(ICEBERG, CLICKHOUSE, envelope={"kind": "debezium", "unavailable": "null"}), "null"),
        (spec(ICEBERG, APPEND | {"table": "n.a"}, envelope=KEEP), "keep"),
        (spec(ICEBERG, CLICKHOUSE | {"mode": "append"}, envelope=KEEP), "keep"),
        (spec(APPEND, envelope=KEEP), "null"),
        (spec(APPEND, envelope=KEEP, changes={"order_by": "version"}), "null"),
    ],
)
def test_what_becomes_of_a_value_that_is_left_out(made: PipelineSpec, wanted: str) -> None:
    assert unavailable(made) == wanted
    assert (UNCHANGED in list(landing_schema(made))) == (wanted == "keep")
    rules = envelope_rules(made)
    assert rules is not None
    assert rules.unavailable == ("null" if wanted == "null" else "refuse")
    assert bool(rules.may_be_unchanged) == (wanted == "keep")


def test_pipeline_without_an_envelope_is_as_it_was() -> None:
    plain = spec(ICEBERG, source={"value": {"columns": COLUMNS}})
    assert (unavailable(plain), unchanged_columns(plain), envelope_rules(plain)) == ("refuse", (), None)
    assert "kept" not in landing_schema(plain).names


def test_columns_that_may_be_kept() -> None:
    """None of the key, none that is required, none of a type that Debezium does not leave out."""
    assert unchanged_columns(spec(ICEBERG)) == ("name", "raw", "tags")


@pytest.mark.parametrize(("deletes", "needed"), [("leave_out", frozenset[str]()), ("rows", None)])
def test_the_values_of_deleted_rows_count_where_deletes_are_rows(deletes: str, needed: frozenset[str] | None) -> None:
    """Else one that cannot be read would be left out without a word."""
    rules = envelope_rules(spec({**APPEND, "deletes": deletes}, envelope="debezium"))
    assert rules
    assert rules.of_deletes == needed

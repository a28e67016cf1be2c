"""Columns that merges add to rows are refused as columns of a pipeline file, since one of the two would be lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobs.spec.column_rules import PREFIX, RESERVED
from tests.kit import specs

ROOT = Path(__file__).parents[3]
# The table's own metadata column, and the start of a table's key columns.
KNOWN = {"__partition", "__key_"}
# Columns beside a row that is a struct: of a transform's records, and of Iceberg's states. Names of Kafka headers, and
# of Python.
APART = {"__filtered", "__headers", "__passes", "__problem", "__raw_", "__refused", "__unknown", "__usable", "__none",
         "__source_", "__root__", "__main__", "__metadata__", "__dropped_", "__debezium_unavailable_value",
         "__key_schema_id", "__value_schema_id", "__dict__"}  # fmt: skip


def test_every_column_that_is_added_to_rows_is_reserved() -> None:
    in_sql = {n for p in ROOT.glob("sql/*/*.j2") for n in re.findall(r"`(__[a-z_]+)", p.read_text())}
    in_code = {n for p in ROOT.glob("jobs/**/*.py") for n in re.findall(r"[\"'](__[a-z_]+)[\"']", p.read_text())}
    assert len(in_sql) > 20
    assert {n for n in in_sql - KNOWN if not n.startswith(PREFIX)} <= RESERVED
    assert {n for n in in_code - KNOWN - APART if not n.startswith(PREFIX)} <= RESERVED


@pytest.mark.parametrize("name", ["__file", "__pos", "__version", "__topic", "__offset", "__time", "__row"])
def test_columns_of_debezium_may_be_columns(name: str) -> None:
    assert name in specs.spec(columns={"id": "long", name: "string"}).source.row


@pytest.mark.parametrize("name", ["__op", "__bm_file"])
def test_a_column_of_the_merge_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is a name that the merge uses itself"):
        specs.spec(columns={"id": "long", name: "string"})

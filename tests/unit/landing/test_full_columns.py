"""Which parts of landed rows are required in files: those that are copied into tables of mode append."""

from __future__ import annotations

import pytest

from jobs.landing.full_columns import full_columns
from jobs.spec.pipeline import PipelineSpec
from tests.kit import specs


def spec(*tables: dict[str, object]) -> PipelineSpec:
    return specs.spec(*tables, columns={"id": "long not null", "name": "string"}, key="id")


def test_what_an_append_table_has() -> None:
    append = specs.table(mode="append", metadata_columns=["offset"])
    assert full_columns(spec(append)) == {("key",), ("key", "id"), ("value",), ("kafka",)}


@pytest.mark.parametrize("table", [specs.table(mode="upsert"), specs.table(kind="bigquery", mode="append")])
def test_nothing_where_no_row_group_is_copied(table: dict[str, object]) -> None:
    assert not full_columns(spec(table))

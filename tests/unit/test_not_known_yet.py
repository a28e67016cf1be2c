"""Statements for people where records have still to say which columns there are: `…` stands for those."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from jobs.destinations.registry import kind_of, own_kinds
from jobs.planning.not_known_yet import not_known_yet, statement_of
from jobs.spec.pipeline import PipelineSpec
from tests.kit import specs

KEY = "the key columns (`…`): the keys of the first records give them"
VALUE = "the columns (`…`): the values of the first records give them"

# A list of columns, or a condition, without any.
NOT_SQL = re.compile(r"\bON\s+(WHEN|$)|(INTO|INSERT|VALUES)\b[^(\n]*\(\s*\)|PARTITION BY\s+ORDER|batchmerge_not")


def open_spec(kind: str, mode: str, columns: Mapping[str, str]) -> PipelineSpec:
    value = {"columns": dict(columns)} if columns else {"columns": "auto"}
    return specs.spec(specs.table(kind, mode), source={"key": {"format": "json"}, "value": value})


@pytest.mark.parametrize(
    ("columns", "unknown"), [({"name": "string"}, [KEY]), ({}, [KEY, VALUE])], ids=["key", "key and value"]
)
@pytest.mark.parametrize("kind", own_kinds())
def test_what_is_not_known_is_not_left_out_of_a_statement(
    kind: str, columns: Mapping[str, str], unknown: list[str]
) -> None:
    for mode in sorted(own_kinds()[kind].capabilities.modes):
        spec = open_spec(kind, mode, columns)
        (table,) = spec.tables
        assert not_known_yet(spec) == unknown
        text = statement_of(spec, table)
        if mode != "append" or text:
            assert "`…`" in text
        if text:
            assert all(f"`{name}`" in text for name in columns) or mode == "delete"
        assert not re.search(
            r"\bON\s+(WHEN|$)|(INTO|INSERT|VALUES)\b[^(\n]*\(\s*\)|PARTITION BY\s+ORDER|batchmerge_not", text
        ), mode


@pytest.mark.parametrize("kind", own_kinds())
def test_a_statement_of_known_columns_is_that_of_the_kind(kind: str) -> None:
    spec = specs.spec(specs.table(kind, "upsert"), key="id")
    (table,) = spec.tables
    assert not_known_yet(spec) == []
    assert statement_of(spec, table) == kind_of(table).statement(spec, table)

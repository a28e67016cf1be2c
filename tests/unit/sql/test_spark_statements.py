"""Every Spark template, rendered for a few pipelines, is one statement of Spark's with every name in it quoted.

What the statements do, `tests/destinations` shows on Spark. Of those that no test runs, or whose text no parser reads,
the SQL that people agreed to is on file. After a wanted change: `REGENERATE_SQL=1 python -m pytest tests/unit/sql`;
read the difference before you commit.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from jobs.changes.columns import CHANGES, POSITIONS
from jobs.changes.columns import ROWS as ROW_OPERATIONS
from jobs.changes.routing import RouteFilter
from jobs.iceberg.nested_fields import nested_change
from jobs.spec.columns import RowColumn
from sql import quote, render

GOLDEN = Path(__file__).parent / "spark"
TEMPLATES = Path(__file__).parents[3] / "sql" / "spark"

BRANCH = ("lake", "air", "flights", "branch_attempt--p--main--1f")
LANDED = ("lake", "landing", "flights_tmp")
KEPT_DELETES = ("lake", "air", "flights__tombstones")
COLUMNS = [
    RowColumn("carrier", pa.string(), False, ("key", "carrier"), is_key=True),
    RowColumn("flight", pa.int32(), False, ("key", "flight"), is_key=True),
    RowColumn("delay`s", pa.int64(), True, ("value", "delay`s")),
    RowColumn("version", pa.int64(), True, ("value", "version")),
    RowColumn("__partition", pa.int32(), True, ("kafka", "partition")),
]
KEYS = ["carrier", "flight"]
MERGE: dict[str, Any] = {
    "target": BRANCH,
    "changes": ["batchmerge_changes"],
    "kept_deletes": None,
    "keys": KEYS,
    "columns": [c.name for c in COLUMNS],
    "mode": "upsert_delete",
    "named": False,
    "null_safe": False,
    "bounded": {0: "string", 1: "int"},
    "order_by": None,
    "unchanged": [],
    "truncated_below": None,
}
ROWS: dict[str, Any] = {
    "columns": COLUMNS,
    "order_by": None,
    "table": LANDED,
    "snapshot": 42,
    "mode": "upsert_delete",
    "operations": CHANGES,
    "row_operations": ROW_OPERATIONS,
    "touched": None,
    "route": None,
    "unchanged": [],
    "last": 7,
    "revised": False,
    "with_time": False,
    "truncated_below": None,
}
# What a table that is merged by position deletes is asked, at a snapshot and by that one's columns.
DELTA = {**MERGE, "target_columns": frozenset(c.name for c in COLUMNS), "broadcast": True}
REDUCED: dict[str, Any] = {"rows": "SELECT 1", "keys": KEYS, "order_by": None, "revised": False}
AGAIN: dict[str, Any] = {**MERGE, "rows": "SELECT 1", "mode": "delete", "recreated": []}

MOVED = {"moved": ["m"], "table": LANDED}

KEPT = {"catalog": "lake", "table": ("air", "flights")}
COMPACTION = {
    "branch": "main",
    "strategy": "binpack",
    "sort_by": (),
    "min_input_files": 5,
    "max_deletes_per_file": 3,
    "target_file_mb": None,
}

LEFT = [RowColumn("body", pa.string(), True, ("value", "body")), COLUMNS[2]]
OPEN: dict[str, Any] = {"recreated": [[2, 7], [3]]}
RETIRED: dict[str, Any] = {"table": LANDED, **OPEN}
DEAD_LETTERS: dict[str, Any] = {"table": LANDED, "values": True, "headers": True, "moves": True, **OPEN}
AT = {"table": LANDED, "snapshot": 42, "until": 9, "revision": 7}
STALE = {**AT, "before": [], "below": None}
VERSION: dict[str, Any] = {"order_by": ("value", "version"), "touched": (6, 7)}
COMPARED: dict[str, Any] = {
    "found": ["f"],
    "expected": ["e"],
    "columns": ["id", "it's `q`"],
    "keys": KEYS,
    "unchanged": [],
    "batch": "_b",
    "recreated": [],
}
GEO = pa.struct([("l`t", pa.int64()), ("gone", pa.int64())])
WIDER = pa.struct([("l`t", pa.int64()), ("it's", GEO)])
SORTED = {**COMPACTION, "strategy": "sort", "sort_by": ["id", "it's `q`"], "target_file_mb": 64}

# The fullest form of every template, and others where parts exclude each other.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("carried_forward", {**REDUCED, "unchanged": LEFT}),
    ("count_rows", {"table": BRANCH}),
    ("compared_rows", {**COMPARED, "spans": None, "compared_in_python": ["it's `q`"], "unchanged": ["it's `q`"]}),
    (
        "compared_rows",
        {**COMPARED, "spans": ["s"], "compared_in_python": [], "keys": ["_t", "_p", "_o"], "recreated": [[2, 7]]},
    ),
    ("dead_letters", {**DEAD_LETTERS, "limited": True, "became": None}),
    ("dead_letters", {**DEAD_LETTERS, "limited": False, "became": "first"}),
    ("dead_letters", {**DEAD_LETTERS, "limited": False, "became": "again"}),
    ("delete_landed", {**RETIRED, "column": "batchNumber", "dead_letters": False, "revised": True, "unsent": False}),
    ("delete_landed", {**RETIRED, "column": "landedAt", "dead_letters": True, "revised": False, "unsent": True}),
    ("deletes_of_moved_rows", MOVED),
    ("duplicate_keys", {"target": ("lake", "air", "flights"), "landed": LANDED, "keys": KEYS}),
    ("expected_rows", {"rows": "SELECT 1", "columns": ["id", "it's `q`"], "unchanged": True}),
    ("keep_deletes", {**MERGE, "kept_deletes": KEPT_DELETES, "order_by": "version"}),
    ("unchanged_columns", AT),
    ("judged_places", {**ROWS, "first": 3, "touched": (6, 7)}),
    ("judged_places", {**ROWS, "first": 3, "mode": "append"}),
    ("key_bounds", {"ordered": dict(enumerate(KEYS)), "changes": ["batchmerge_changes"], "keeps_deletes": False}),
    ("key_bounds", {"ordered": dict(enumerate(KEYS)), "changes": ["batchmerge_changes"], "keeps_deletes": True}),
    ("landed_rows", {**ROWS, "columns": [*COLUMNS, LEFT[0]], "unchanged": LEFT}),
    ("landed_rows", {**ROWS, **VERSION, "truncated_below": 7}),
    ("landed_rows", {**ROWS, "revised": True, "touched": (6, 7)}),
    (
        "landed_rows",
        {**ROWS, "mode": "append", "route": RouteFilter(("a",), ("value", "address", "zip`"), pattern="1.*")},
    ),
    ("landed_rows", {**ROWS, "route": RouteFilter(path=("key", "carrier"), names=("air.aa", "aa"))}),
    ("largest_order", {**ROWS, **VERSION, "rows": "SELECT 1", "keys": COLUMNS[:2]}),
    ("last_change_per_key", {**REDUCED, "order_by": "version"}),
    ("last_change_per_key", {**REDUCED, "revised": True}),
    ("last_delete_per_key", {**REDUCED, "order_by": "version"}),
    ("last_delete_per_key", {**REDUCED, "revised": True}),
    ("merge", {**MERGE, "order_by": "version", "truncated_below": 7}),
    ("merge", {**MERGE, "columns": [*MERGE["columns"], "body"], "unchanged": ["body", "delay`s"]}),
    ("merge", {**MERGE, "mode": "upsert"}),
    ("merge", {**MERGE, "mode": "delete"}),
    ("merge", {**MERGE, "mode": "delete", "named": True}),
    ("merge_effect", {**MERGE, "order_by": "version", "truncated_below": 7}),
    ("merge_effect", {**MERGE, "mode": "delete"}),
    ("merge_effect", {**MERGE, "mode": "delete", "named": True, "order_by": "version", "truncated_below": 7}),
    ("missing_rows", {"rows": "SELECT 1", "target": BRANCH, "mode": "append", "recreated": [[2, 7], [3]]}),
    ("missing_rows", {**AGAIN, "order_by": "version"}),
    ("missing_rows", {**AGAIN, "recreated": [[2, 7], [3]], "null_safe": True}),
    ("missing_rows", {**AGAIN, "target": None}),
    ("nested_value", {"column": "it's `q`", "change": nested_change(pa.list_(GEO), pa.list_(WIDER))}),
    (
        "nested_value",
        {"column": "it's `q`", "change": nested_change(pa.map_(pa.string(), GEO), pa.map_(pa.string(), WIDER))},
    ),
    ("quarantined", {"table": LANDED, **OPEN}),
    ("quarantined", {"table": LANDED, "recreated": []}),
    ("revised_spans", AT),
    ("row_delta", {**DELTA, "order_by": "delay`s", "unchanged": ["new", "delay`s"], "broadcast": False}),
    ("row_delta", {**DELTA, "mode": "delete", "order_by": "new"}),
    ("row_delta", {**DELTA, "mode": "delete", "named": True}),
    ("row_delta", {**DELTA, "target": None, "unchanged": ["delay`s"]}),
    ("rows_at", {"table": LANDED, "columns": [("id", "ID"), ("it's `q`", None)], "snapshot": 7}),
    ("some_rows", {"table": BRANCH, "columns": ["id", "it's `q`"], "limit": 10}),
    (
        "stale_keys",
        {
            **STALE,
            "revised": False,
            "refused": ["x"],
            "operations": ["upsert"],
            "route": None,
            "leaves_unchanged": False,
        },
    ),
    (
        "stale_keys",
        {**STALE, "revised": True, "refused": None, "operations": ["upsert"], "route": None, "leaves_unchanged": True},
    ),
    (
        "stale_keys",
        {
            **STALE,
            **{"revised": True, "refused": None, "operations": ["upsert", "delete"], "route": None},
            **{"ordered": True, "leaves_unchanged": False},
        },
    ),
    (
        "stale_keys",
        {
            **AT,
            **{"revised": True, "refused": None, "operations": ["upsert"], "route": None, "leaves_unchanged": False},
            **{"before": [(3, 0), (5, 12)], "below": 7, "most": 200},
        },
    ),
    ("superseded", {**ROWS, "rows": "SELECT 1", "touched": (6, 7)}),
    ("superseded", {**ROWS, "rows": "SELECT 1", "mode": "delete"}),
    ("superseded", {**ROWS, "rows": "SELECT 1", "mode": "delete", "touched": (6, 7)}),
    ("values_of_moved_rows", {**MOVED, "columns": ["delay`s", "body"], "keys": KEYS, "held": ["h"], "held_at": 7}),
    ("values_of_moved_rows", {**MOVED, "columns": ["body"], "keys": KEYS, "held": None}),
    ("moved_rows_read_again", {**MOVED, "held_at": 7}),
    ("without_deleted_later", {**REDUCED, "kept_deletes": KEPT_DELETES, "null_safe": False}),
    ("without_refused", {"rows": "SELECT 1", "refused": ["x"]}),
]
# Keys that may be null, and procedures, whose arguments hold names inside of texts.
ON_FILE: dict[str, tuple[str, dict[str, Any]]] = {
    "merge.null_safe": ("merge", {**MERGE, "null_safe": True, "bounded": {}}),
    "expire_snapshots": ("expire_snapshots", {**KEPT, "snapshots": [5, 7]}),
    "remove_orphan_files": (
        "remove_orphan_files",
        {**KEPT, "older_than": "2026-01-01 00:00:00", "by_prefix": False},
    ),
    "rewrite_data_files": ("rewrite_data_files", {**KEPT, **COMPACTION}),
    "rewrite_data_files.sorted": ("rewrite_data_files", {**KEPT, **SORTED}),
    "rewrite_manifests": ("rewrite_manifests", KEPT),
}
# The templates' own: letters for tables, and names of ours, in which nothing can be wrong.
_OWN = re.compile(r"[a-z]|c[01]|value|up_to_here")


@pytest.mark.parametrize(("template", "arguments"), CASES)
def test_statement_is_one_of_sparks_and_every_name_is_quoted(template: str, arguments: dict[str, Any]) -> None:
    statement = sqlglot.parse_one(render("spark", template, **arguments), dialect="spark")
    bare = [name.this for name in statement.find_all(exp.Identifier) if not name.quoted]
    assert [name for name in bare if not _OWN.fullmatch(name)] == []


@pytest.mark.parametrize("case", ON_FILE)
def test_rendered_sql_is_the_agreed_one(case: str) -> None:
    template, arguments = ON_FILE[case]
    text = render("spark", template, **arguments).rstrip() + "\n"
    golden = GOLDEN / f"{case}.sql"
    if os.environ.get("REGENERATE_SQL"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_every_template_has_a_case() -> None:
    included = {"incarnation", "match", "open_dead_letters", "readings", "selected", "taken"}
    rendered = {template for template, _ in [*CASES, *ON_FILE.values()]} | included
    assert {path.name.removesuffix(".sql.j2") for path in TEMPLATES.glob("*.sql.j2")} <= rendered


def test_changes_that_a_delete_brings_have_places_of_their_own_in_late_batches_too() -> None:
    assert f"-1 - (s.`__batch` * {POSITIONS} + s.`__i`)" in render("spark", "missing_rows", **AGAIN)


@pytest.mark.parametrize("limited", [True, False])
def test_only_a_list_of_dead_letters_is_limited(limited: bool) -> None:
    """A limit leaves one task for whatever reads the rows behind it."""
    text = render("spark", "dead_letters", **DEAD_LETTERS, limited=limited, became=None)
    assert ["ORDER BY" in text, "LIMIT" in text, ":most" in text] == [limited] * 3


@pytest.mark.parametrize(
    ("system", "name", "quoted"),
    [
        ("spark", "a", "`a`"),
        ("spark", ("a", "b c"), "`a`.`b c`"),
        ("spark", "a`; DROP TABLE t --", "`a``; DROP TABLE t --`"),
        ("spark", ("a.b",), "`a.b`"),
        ("clickhouse", "a`; DROP TABLE t --", "`a\\`; DROP TABLE t --`"),
    ],
)
def test_identifiers_are_always_quoted(system: str, name: str | tuple[str, ...], quoted: str) -> None:
    assert quote(system, name) == quoted

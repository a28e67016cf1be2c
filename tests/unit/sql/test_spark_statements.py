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

from jobs.changes.routing import RouteFilter
from jobs.spec.columns import RowColumn
from sql import quote, render

GOLDEN = Path(__file__).parent / "spark"
TEMPLATES = Path(__file__).parents[3] / "sql" / "spark"

BRANCH = ("lake", "air", "flights", "branch_attempt--p--main--1f")
LANDED = ("lake", "landing", "flights_tmp")
TOMBSTONES = ("lake", "air", "flights__tombstones")
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
    "tombstones": None,
    "keys": KEYS,
    "columns": [c.name for c in COLUMNS],
    "mode": "upsert_delete",
    "null_safe": False,
    "bounded": {0: "string", 1: "int"},
    "order_by": None,
    "kept": [],
    "truncated_below": None,
}
ROWS: dict[str, Any] = {
    "columns": COLUMNS,
    "order_by": None,
    "table": LANDED,
    "snapshot": 42,
    "mode": "upsert_delete",
    "touched": None,
    "route": None,
    "kept": [],
    "last": 7,
    "revised": False,
    "has_revision": True,
    "with_time": False,
    "truncated_below": None,
}
# What a table that is merged by position deletes is asked, at a snapshot and by that one's columns.
DELTA = {**MERGE, "target_columns": frozenset(c.name for c in COLUMNS), "broadcast": True}
REDUCED: dict[str, Any] = {"rows": "SELECT 1", "keys": KEYS, "order_by": None, "revised": False}

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

AT_9 = {"table": LANDED, "snapshot": 42, "until": 9}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dead_letters": ("dead_letters", {"table": LANDED, "values": False, "headers": False, "revised": False}),
    "dead_letters.values": ("dead_letters", {"table": LANDED, "values": True, "headers": True, "revised": True}),
    "kept_columns": ("kept_columns", {"table": LANDED, "snapshot": 42}),
    "landed_rows.keeping": ("landed_rows", {**ROWS, "columns": [*COLUMNS, LEFT[0]], "kept": LEFT}),
    "carried_forward": ("carried_forward", {"rows": "SELECT 1", "keys": KEYS, "kept": LEFT}),
    "merge.upsert_delete_keeping": (
        "merge",
        {**MERGE, "columns": [*MERGE["columns"], "body"], "kept": ["body", "delay`s"]},
    ),
    "expected_rows.keeping": ("expected_rows", {"rows": "SELECT 1", "columns": ["id", "name"], "kept": True}),
    "reconcile.keeping": (
        "reconcile",
        {"found": ["f"], "expected": ["e"], "spans": None, "columns": ["id", "name"], "keys": KEYS, "kept": ["name"]},
    ),
    "duplicate_keys": ("duplicate_keys", {"target": ("lake", "air", "flights"), "landed": LANDED, "keys": KEYS}),
    "keep_tombstones": ("keep_tombstones", {**MERGE, "tombstones": TOMBSTONES, "order_by": "version"}),
    "key_bounds": ("key_bounds", {"keys": KEYS, "changes": ["batchmerge_changes"]}),
    "quarantined": ("quarantined", {"table": LANDED, "revised": True}),
    "landed_rows.upsert_delete": ("landed_rows", ROWS),
    "landed_rows.append": ("landed_rows", {**ROWS, "mode": "append"}),
    "landed_rows.ordered_replay": ("landed_rows", {**ROWS, "order_by": ("value", "version"), "touched": (3, 5)}),
    "landed_rows.truncated": ("landed_rows", {**ROWS, "order_by": ("value", "version"), "truncated_below": 7}),
    "landed_rows.revised": ("landed_rows", {**ROWS, "revised": True, "touched": (6, 7)}),
    "landed_rows.revised_append": ("landed_rows", {**ROWS, "mode": "append", "revised": True, "touched": (6, 7)}),
    "superseded": ("superseded", {**ROWS, "rows": "SELECT 1", "touched": (6, 7)}),
    "superseded.of_state": ("superseded", {**ROWS, "mode": "delete", "rows": "SELECT 1", "touched": None}),
    "revised_spans": ("revised_spans", {"table": LANDED, "snapshot": 42, "revision": 7}),
    "landed_rows.route_topics": ("landed_rows", {**ROWS, "route": RouteFilter(topics=("a", "b"))}),
    "landed_rows.route_field": (
        "landed_rows",
        {**ROWS, "mode": "append", "route": RouteFilter(("a",), ("value", "address", "zip`"), pattern="1.*")},
    ),
    "landed_rows.route_name": (
        "landed_rows",
        {**ROWS, "route": RouteFilter(path=("key", "carrier"), names=("air.aa", "aa")), "touched": (3, 5)},
    ),
    "last_change_per_key": ("last_change_per_key", REDUCED),
    "last_change_per_key.revised": ("last_change_per_key", {**REDUCED, "revised": True}),
    "last_change_per_key.ordered": ("last_change_per_key", {**REDUCED, "order_by": "version"}),
    "largest_order": (
        "largest_order",
        {**ROWS, "rows": "SELECT 1", "order_by": ("value", "version"), "keys": COLUMNS[:2], "touched": (6, 7)},
    ),
    "last_delete_per_key": ("last_delete_per_key", REDUCED),
    "last_delete_per_key.ordered": ("last_delete_per_key", {**REDUCED, "order_by": "version"}),
    "delete_landed": (
        "delete_landed",
        {"table": LANDED, "column": "batchNumber", "dead_letters": False, "revised": False},
    ),
    "delete_landed.revised": (
        "delete_landed",
        {"table": LANDED, "column": "batchNumber", "dead_letters": False, "revised": True},
    ),
    "expire_snapshots": ("expire_snapshots", {**KEPT, "snapshots": [5, 7]}),
    "remove_orphan_files": ("remove_orphan_files", {**KEPT, "older_than": "2026-01-01 00:00:00", "by_prefix": False}),
    "rewrite_data_files": ("rewrite_data_files", {**KEPT, **COMPACTION}),
    "rewrite_data_files.sorted": (
        "rewrite_data_files",
        {**KEPT, **COMPACTION, "strategy": "sort", "sort_by": ["id", "it's `q`"], "target_file_mb": 64},
    ),
    "rewrite_manifests": ("rewrite_manifests", KEPT),
    "merge.upsert": ("merge", {**MERGE, "mode": "upsert"}),
    "merge.upsert_delete": ("merge", MERGE),
    "merge.upsert_delete_ordered": ("merge", {**MERGE, "order_by": "version"}),
    "merge.truncating": ("merge", {**MERGE, "order_by": "version", "truncated_below": 7}),
    "merge_effect.truncating": ("merge_effect", {**MERGE, "order_by": "version", "truncated_below": 7}),
    "merge.delete": ("merge", {**MERGE, "mode": "delete"}),
    "merge.null_safe": ("merge", {**MERGE, "null_safe": True, "bounded": {}}),
    "merge_effect.upsert_delete_ordered": ("merge_effect", {**MERGE, "order_by": "version"}),
    "row_delta": ("row_delta", DELTA),
    "row_delta.first": ("row_delta", {**DELTA, "target": None, "kept": ["delay`s"]}),
    "row_delta.ordered_keeping": (
        "row_delta",
        {**DELTA, "order_by": "delay`s", "kept": ["new", "delay`s"], "broadcast": False},
    ),
    "row_delta.delete": ("row_delta", {**DELTA, "mode": "delete", "order_by": "new"}),
    "merge_effect.delete": ("merge_effect", {**MERGE, "mode": "delete"}),
    "missing_rows.append": ("missing_rows", {"rows": "SELECT 1", "target": BRANCH, "mode": "append", "recreated": []}),
    "missing_rows.delete": ("missing_rows", {"rows": "SELECT 1", "target": BRANCH, "mode": "delete", "recreated": []}),
    "missing_rows.recreated": (
        "missing_rows",
        {"rows": "SELECT 1", "target": BRANCH, "mode": "append", "recreated": [[2, 7], [3]]},
    ),
    "count_rows": ("count_rows", {"table": BRANCH}),
    "some_rows": ("some_rows", {"table": BRANCH, "columns": ["id", "it's `q`"], "limit": 0}),
    "some_rows.limited": ("some_rows", {"table": BRANCH, "columns": ["id"], "limit": 10}),
    "expected_rows": ("expected_rows", {"rows": "SELECT 1", "columns": ["id", "name"], "kept": False}),
    "reconcile": (
        "reconcile",
        {"found": ["f"], "expected": ["e"], "spans": None, "columns": ["id", "name"], "keys": KEYS, "kept": []},
    ),
    "reconcile.coordinates": (
        "reconcile",
        {"found": ["f"], "expected": ["e"], "spans": ["s"], "columns": ["id"], "keys": ["_t", "_p", "_o"], "kept": []},
    ),
    "stale_keys": (
        "stale_keys",
        {**AT_9, "revised": False, "refused": ["x"], "mode": "upsert", "route": None, "keeps": False},
    ),
    "stale_keys.revised": (
        "stale_keys",
        {**AT_9, "revised": True, "refused": None, "mode": "upsert", "route": None, "keeps": True},
    ),
    "without_refused": ("without_refused", {"rows": "SELECT 1", "refused": ["x"]}),
    "expected_values": (
        "expected_values",
        {"found": ["f"], "expected": ["e"], "columns": ["tags"], "keys": KEYS, "kept": ["tags"]},
    ),
    "without_deleted_later": (
        "without_deleted_later",
        {"rows": "SELECT 1", "tombstones": TOMBSTONES, "keys": KEYS, "null_safe": False},
    ),
}


# Keys that may be null, and procedures, whose arguments hold names inside of texts.
ON_FILE = [case for case, (template, _) in CASES.items() if template.startswith(("rewrite", "expire", "remove"))]
ON_FILE.append("merge.null_safe")
# The templates' own: single letters for tables, and names of ours, in which nothing can be wrong.
_OWN = re.compile(r"[a-z]|c[01]|value|up_to_here")


@pytest.mark.parametrize("case", CASES)
def test_statement_is_one_of_sparks_and_every_name_is_quoted(case: str) -> None:
    template, arguments = CASES[case]
    statement = sqlglot.parse_one(render("spark", template, **arguments), dialect="spark")
    bare = [name.this for name in statement.find_all(exp.Identifier) if not name.quoted]
    assert [name for name in bare if not _OWN.fullmatch(name)] == []


@pytest.mark.parametrize("case", ON_FILE)
def test_rendered_sql_is_the_agreed_one(case: str) -> None:
    template, arguments = CASES[case]
    text = render("spark", template, **arguments).rstrip() + "\n"
    golden = GOLDEN / f"{case}.sql"
    if os.environ.get("REGENERATE_SQL"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_every_template_has_a_case() -> None:
    rendered = {template for template, _ in CASES.values()} | {"match", "taken", "readings"}
    assert {path.name.removesuffix(".sql.j2") for path in TEMPLATES.glob("*.sql.j2")} <= rendered


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

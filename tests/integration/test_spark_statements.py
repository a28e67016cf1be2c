"""What statements of `sql/spark` do with rows that a whole run brings about only in the rarest of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.spark.own_views import own_views
from sql import render

View = Callable[[str], list[str]]


@pytest.fixture
def view(spark: SparkSession, request: pytest.FixtureRequest) -> View:
    """Makes a view of such rows; its name as templates take it."""

    def make(rows: str) -> list[str]:
        context = own_views(spark, "of_a_test")
        (name,) = context.__enter__()
        request.addfinalizer(lambda: context.__exit__(None, None, None))
        spark.sql(rows).createOrReplaceTempView(name)
        return [name]

    return make


def test_two_keys_of_one_record_replace_a_row_each(spark: SparkSession, view: View) -> None:
    """It was read again with another key: a delete and an upsert have the same place."""
    changes = view(
        """SELECT * FROM VALUES
        (1, 'gone', 'delete', named_struct('c0', false), 7L, 0L), (2, null, 'upsert', named_struct('c0', true), 7L, 0L)
        AS t(`id`, `name`, `__op`, `__unchanged`, `__batch`, `__i`)"""
    )
    target = view("SELECT * FROM VALUES (1, 'one', 'f', 0L), (2, 'two', 'f', 1L) AS t(`id`, `name`, `_file`, `_pos`)")
    arguments: dict[str, Any] = {"keys": ["id"], "columns": ["id", "name"], "mode": "upsert_delete", "named": False}
    text = render(
        "spark",
        "row_delta",
        target=target,
        changes=changes,
        target_columns=frozenset({"id", "name"}),
        broadcast=False,
        null_safe=False,
        bounded={},
        order_by=None,
        unchanged=["name"],
        **arguments,
    )
    found = (
        spark.sql(text).orderBy("id").select("id", "name", "__hit", "__bm_pos", "__bm_writes", "__bm_removes").collect()
    )
    assert [tuple(row) for row in found] == [(1, "gone", 1, 0, False, True), (2, "two", 1, 1, True, True)]


@pytest.mark.parametrize("mode", ["append", "delete"])
def test_row_without_a_batch_may_be_of_any_topic_of_its_name(mode: str, spark: SparkSession, view: View) -> None:
    """The table has got the column after its topic was recreated: offset 0 of both topics is there, 1 of the second."""
    target = view(
        """SELECT * FROM VALUES ('t', 0, 0L, null, 5), ('t', 0, 1L, null, 5), ('t', 0, 2L, 1L, 5)
        AS t(`_topic`, `__partition`, `_offset`, `_batch`, `id`)"""
    )
    rows = """SELECT batch AS `__batch`, at AS `__i`, 'upsert' AS `__op`, 5 AS `id`, 't' AS `_topic`,
        0 AS `__partition`,
        at AS `_offset`, named_struct('topic', 't', 'partition', 0, 'offset', at) AS `__kafka`
        FROM VALUES (1L, 0L), (2L, 0L), (2L, 1L), (2L, 2L) AS r(batch, at)"""
    text = render(
        "spark",
        "missing_rows",
        rows=rows,
        target=target,
        mode=mode,
        recreated=[[2]],
        columns=["id", "_topic", "__partition", "_offset"],
        keys=["id"],
        null_safe=False,
        order_by=None,
    )
    found = spark.sql(text, args={"recreated_0": "t"}).select("__batch", "_offset").collect()
    assert [tuple(row) for row in found] == [(2, 2)]


@pytest.mark.parametrize(
    ("again", "known"),
    [
        pytest.param("(2L, 0L, 9L, 7L)", "held", id="another record"),
        pytest.param("(3L, 0L, 1L, 4L)", "held", id="the table has it"),
        pytest.param("(5L, 0L, 1L, 7L)", "held", id="one that the table has not got at all"),
        pytest.param("(3L, 0L, 1L, 7L)", None, id="a record of the key"),
        pytest.param("(3L, 0L, 9L, 7L)", None, id="and it has another key now"),
        pytest.param("(2L, 1L, 1L, 7L)", None, id="one that could not be read has the key"),
    ],
)
def test_row_from_before_a_revision_shows_nothing_of_its_key(
    again: str, known: str | None, spark: SparkSession, view: View
) -> None:
    """The table has the batches up to 4; the changes leave the column as it is, and the delete is in batch 6."""
    landed = view(
        f"""SELECT batch AS `batchNumber`, at AS `i`, revision, named_struct('id', id) AS `key`,
          named_struct('body', CAST(null AS STRING)) AS `value`, IF(batch = 6, 'delete', 'upsert') AS `op`,
          array('body') AS `kept`, CAST(null AS STRUCT<kind: STRING>) AS `error`,
          named_struct('topic', 't', 'partition', 0, 'offset', 10 * batch + at) AS `kafka`
        FROM VALUES (2L, 0L, 9L, null), (3L, 0L, 1L, null), (5L, 0L, 1L, null), (6L, 0L, 1L, null), {again}
        AS r(batch, at, id, revision)"""
    )
    moved = view(
        """SELECT 8L AS `batch`, 0L AS `i`, named_struct('id', 1L) AS `old_key`,
          named_struct('batchNumber', 6L, 'i', 0L) AS `end`, named_struct('topic', 't', 'partition', 0) AS `end_at`"""
    )
    held = view("SELECT 1L AS `id`, 'held' AS `body`")
    arguments: dict[str, Any] = {"columns": ["body"], "keys": ["id"], "held": held, "held_at": 4}
    text = render("spark", "values_of_moved_rows", moved=moved, table=landed, **arguments)
    found = spark.sql(text, args={"moved_kind": "moved", "unchanged_0": "body"}).select("earlier.body").collect()
    assert [row["body"] for row in found] == ([known] if known else [])

"""Spark's writes to Iceberg tables, with summary properties of ours in their snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.batch import PREFIX
from jobs.iceberg.nested_fields import nested_changes
from sql import quote, render

_OPTION = "snapshot-property."
_SESSION = f"spark.sql.iceberg.{_OPTION}"


def with_all_columns(rows: DataFrame, declared: Sequence[str], table: pa.Schema) -> DataFrame:
    """The declared columns, and nulls for the table's other columns: an append has to name all of them.

    The column names are an argument, because asking the DataFrame for them is a request to the Spark server.
    """
    # Spark compares names without case.
    named = {name.lower() for name in declared}
    others = [f for f in table if f.name.lower() not in named]
    return rows.select(
        *(F.col(quote("spark", name)) for name in declared),
        # Without a type, which fits each column: Spark has not all of the types that other engines give.
        *(F.lit(None).alias(f.name) for f in others),
    )


def with_nested_fields(rows: DataFrame, given: Mapping[str, pa.DataType], table: pa.Schema) -> DataFrame:
    """The rows with the nested fields of the table's columns: a write has to name all of them, and no others.

    Args:
        given: types of the rows' columns, by name; those that are left out stay as they are.
    """
    changes = nested_changes(given, table).items()
    values = {name: render("spark", "nested_value", column=name, change=change) for name, change in changes}
    return rows.withColumns({name: F.expr(value) for name, value in values.items()}) if values else rows


def append(rows: DataFrame, path: Sequence[str], summary: Mapping[str, str], in_any_order: bool = False) -> None:
    """Appends rows to a table or branch, as one snapshot.

    Args:
        in_any_order: tasks keep the files of all their partitions open, for rows that Spark cannot group by them.
    """
    _remove_left(rows.sparkSession)
    writer = rows.writeTo(quote("spark", tuple(path)))
    writer = writer.option("fanout-enabled", "true") if in_any_order else writer
    for key, value in summary.items():
        writer = writer.option(_OPTION + key, value)
    writer.append()


@contextmanager
def with_summary(spark: SparkSession, summary: Mapping[str, str]) -> Iterator[None]:
    """Statements in this context make snapshots with this summary.

    A MERGE takes the summary from the session's settings, so they are always removed again. If two merges share a
    session, one may get the summary of the other: check it (`Attempt.head`).
    """
    _remove_left(spark)
    try:
        for key, value in summary.items():
            spark.conf.set(_SESSION + key, value)
        yield
    finally:
        for key in summary:
            spark.conf.unset(_SESSION + key)


def _remove_left(spark: SparkSession) -> None:
    """Removes what a run that was killed has left in its session, of which every write would take it.

    What a user has set stays.
    """
    for key in spark.conf.getAll:
        if key.startswith(_SESSION + PREFIX):
            spark.conf.unset(key)

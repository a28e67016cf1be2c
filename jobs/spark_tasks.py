"""What Spark's tasks tell the run instead of rows: one line of text each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

Batches = Iterable[pa.RecordBatch]
_TELLS = pa.schema([pa.field("report", pa.string(), nullable=False)])


def numbered(spark: SparkSession, count: int, tasks: int | None = None) -> DataFrame:
    """Numbers from 0, for tasks that know by them what to do: a task for each, or so many tasks together."""
    return spark.range(0, count, 1, tasks or count)


def numbers(batches: Batches) -> Iterator[int]:
    """Those of a task (`numbered`)."""
    for batch in batches:
        yield from batch.column("id").to_pylist()


def told(text: str) -> pa.RecordBatch:
    """What a task gives back."""
    return pa.RecordBatch.from_pydict({"report": [text]}, _TELLS)


def told_by_tasks(rows: DataFrame, task: Callable[[Batches], Batches]) -> list[str]:
    """Has every task go through its rows; what each of them tells (`told`)."""
    reports = rows.mapInArrow(plain_function(task), from_arrow_schema(_TELLS))
    return [row["report"] for row in reports.collect()]


def plain_function(task: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """Spark wants a function, not a callable object."""

    def run(batches: Batches) -> Batches:
        return task(batches)

    return run

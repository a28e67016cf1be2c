"""Spark tasks that return a report to the run instead of rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import mmh3
import pyarrow as pa

from jobs.spark.sent_task import SentTask
from resources.carried_errors import carrying_errors, cause_of
from resources.errors import BatchmergeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterable[pa.RecordBatch]
Task = Callable[[Batches], Batches]
_ZERO = pa.RecordBatch.from_pydict({"id": [0]})
_REPORT_SCHEMA = pa.schema([pa.field("report", pa.binary(), nullable=False)])


def numbered(spark: SparkSession, count: int, tasks: int | None = None) -> DataFrame:
    """Rows with the numbers from 0 to `count`, by which tasks know what to do: one task each, or `tasks` in all."""
    from pyspark.sql.types import LongType, StructField, StructType

    rows = spark.range(0, count, 1, tasks or count)
    # Set the schema here: asking the server would cost each job a round trip.
    rows._cached_schema = StructType([StructField("id", LongType(), nullable=False)])  # type: ignore[attr-defined]
    return rows


def to_each(rows: DataFrame, tasks: int, name: str) -> DataFrame:
    """Sends all rows to each of `tasks` tasks, with the task's number (`task_numbers`) in a column of this name.

    By a shuffle, since rows in a task's function, or broadcast rows, would pass through the driver.
    """
    from pyspark.sql import functions as F

    every = F.explode(F.array(*(F.lit(number).cast("long") for number in task_numbers(tasks))))
    return rows.withColumn(name, every).repartition(tasks, name)


def task_numbers(tasks: int) -> list[int]:
    """`tasks` numbers that Spark's hash sends to different partitions; numbers from 0 would collide in some and leave
    others without work."""
    found = dict[int, int]()
    for number in count():
        found.setdefault(mmh3.hash(number.to_bytes(8, "little"), 42) % tasks, number)
        if len(found) == tasks:
            return list(found.values())
    raise AssertionError


def numbers(batches: Batches) -> Iterator[int]:
    """The numbers in a task's input (`numbered`)."""
    for batch in batches:
        yield from batch.column("id").to_pylist()


def report_row(report: object) -> pa.RecordBatch:
    """The report of a task, as the row that it returns."""
    return pa.RecordBatch.from_pydict({"report": [pickle.dumps(report)]}, _REPORT_SCHEMA)


def reports_in(batches: Batches) -> list[Any]:
    """The reports in rows of `report_row`."""
    return [pickle.loads(report) for batch in batches for report in batch.column("report").to_pylist()]


def telling(task: Task) -> Task:
    """Makes a task report our errors instead of failing, so that Spark does not retry it and the run raises them."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(batches)
        except BatchmergeError as problem:
            yield report_row(problem)

    return run


def without_errors(reports: list[Any]) -> list[Any]:
    """The reports, if none is an error (`telling`); else raises the cause of the errors."""
    if errors := [report for report in reports if isinstance(report, BatchmergeError)]:
        raise cause_of(errors)
    return reports


class OneTask:
    """Runs work that needs a single Spark task, which gets the number 0."""

    def __call__(self, spark: Callable[[], SparkSession], task: Task) -> list[Any]:
        """Runs the task in a job of its own; returns its reports.

        Args:
            spark: opens the session.
        """
        return task_reports(numbered(spark(), 1), task)

    def is_not_enough(self) -> None:
        """Announces that the work needs several tasks, so that others that share a job do not wait for it."""


@dataclass(frozen=True)
class Several:
    """The function of a task that runs many tasks: their numbers in, the reports of each with its number out."""

    tasks: Sequence[Task]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            yield from (report_row((number, report)) for report in reports_in(self.tasks[number]([_ZERO])))


def reports_for_each(spark: SparkSession, tasks: Sequence[Task]) -> list[list[Any]]:
    """Runs these tasks (each gets the number 0) in one job, of as many Spark tasks as run at a time; their reports."""
    from resources.spark import parallelism

    found: list[list[Any]] = [[] for _ in tasks]
    shares = min(len(tasks), parallelism(spark)) if len(tasks) > 1 else 1
    for number, report in task_reports(numbered(spark, len(tasks), shares), Several(tasks)):
        found[number].append(report)
    return found


def task_reports(rows: DataFrame, task: Task) -> list[Any]:
    """Runs a task on each partition of the rows; returns the reports (`report_row`)."""
    done = in_arrow(rows, task, _REPORT_SCHEMA).collect()
    return without_errors([pickle.loads(row["report"]) for row in done])


def in_arrow(rows: DataFrame, task: Task, schema: pa.Schema) -> DataFrame:
    """What a task makes of each partition of the rows. Our errors reach the run as they were raised."""
    from pyspark.sql.pandas.types import from_arrow_schema

    names = rows.columns
    has_dots = any("." in name or "`" in name for name in names)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        with carrying_errors():
            yield from task(batch.rename_columns(names) for batch in batches) if has_dots else task(batches)

    # `mapInArrow` of Spark Connect takes a dot in a column's name for a path.
    given = rows.toDF(*(f"c{n}" for n in range(len(names)))) if has_dots else rows
    return given.mapInArrow(SentTask(run), from_arrow_schema(schema, prefer_timestamp_ntz=True))

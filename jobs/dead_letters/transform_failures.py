"""Finds the dead letters on which Spark fails in the transform, by bisection, however many there are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.landing.failing_records import Coordinates, error_class, failing

T = TypeVar("T")

_LOG = logging.getLogger("batchmerge")
_AT_A_TIME = 2_000


def transform_failures(dead_letters: DataFrame, evaluated: Callable[[DataFrame], DataFrame]) -> dict[Coordinates, str]:
    """The dead letters on which Spark fails in the transform, with its error class."""

    def evaluate(part: DataFrame) -> None:
        evaluated(part).agg(F.count("value")).collect()

    try:
        evaluate(dead_letters)
        return {}
    except PySparkException as problem:
        if error_class(problem) is None:
            raise
    batches = sorted(row["batch"] for row in dead_letters.select("batch").distinct().collect())
    found: dict[Coordinates, str] = {}
    for (batch,), _ in failing(
        batches, _halves, lambda part: evaluate(_between(dead_letters, "batch", part[0], part[-1]))
    ):
        found |= _failing_in(dead_letters.where(F.col("batch") == batch), evaluate)
    _LOG.info("the transform fails on %d of the dead letters", len(found))
    return found


def _failing_in(dead_letters: DataFrame, evaluate: Callable[[DataFrame], None]) -> dict[Coordinates, str]:
    """The failing dead letters of one batch. The run's memory has only the numbers of a few dead letters at a time."""
    found: dict[Coordinates, str] = {}
    some = _after(dead_letters, -1)
    while some:
        for (i,), reason in failing(
            some, _halves, lambda part: evaluate(_between(dead_letters, "i", part[0], part[-1]))
        ):
            for row in _between(dead_letters, "i", i, i).select("topic", "partition", "offset").collect():
                found[row["topic"], row["partition"], row["offset"]] = reason
        some = _after(dead_letters, some[-1])
    return found


def _after(dead_letters: DataFrame, last: int) -> list[int]:
    """The next values of `i` of the batch's dead letters."""
    return [
        row["i"] for row in dead_letters.where(F.col("i") > last).select("i").orderBy("i").limit(_AT_A_TIME).collect()
    ]


def _between(dead_letters: DataFrame, name: str, first: int, last: int) -> DataFrame:
    return dead_letters.where(F.col(name).between(F.lit(first).cast("bigint"), F.lit(last).cast("bigint")))


def _halves(part: list[T]) -> list[list[T]]:
    middle = len(part) // 2
    return [part[:middle], part[middle:]] if middle else []

"""The records on which a transform fails, found by bisection: Spark has no error per row.

An expression that fails on one record (a division by zero) fails the whole job. The records at fault become bad
records, with Spark's error class. If there are more than a few, the batch is refused: such a transform should use
`try_divide` etc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pyspark.errors import PySparkException

from jobs.offsets import OffsetRange, TopicPartition
from resources.errors import BadRecords

Part = TypeVar("Part")
Coordinates = tuple[str, int, int]
"""Topic, partition, offset."""

STAGE = "transform"
_MOST = 10
# Spark's error classes that a record's values cause; others are problems of the statement, the server or Kafka.
_OF_VALUES = (
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "CANNOT_DECODE_URL",
    "CANNOT_PARSE_",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "COLLECTION_SIZE_LIMIT_EXCEEDED",
    "CONVERSION_INVALID_INPUT",
    "DATETIME_",
    "DIVIDE_BY_ZERO",
    "DUPLICATED_MAP_KEY",
    "FAILED_PARSE_STRUCT_TYPE",
    "ILLEGAL_DAY_OF_WEEK",
    "INTERVAL_",
    "INVALID_ARRAY_INDEX",
    "INVALID_BITMAP_POSITION",
    "INVALID_DATETIME_PATTERN",
    "INVALID_FORMAT",
    "INVALID_FRACTION_OF_SECOND",
    "INVALID_INDEX_OF_ZERO",
    "INVALID_PARAMETER_VALUE",
    "INVALID_REGEXP_REPLACE",
    "INVALID_TIMEZONE",
    "INVALID_URL",
    "INVALID_UTF8_STRING",
    "INVALID_VARIANT_",
    "MALFORMED_CHARACTER_CODING",
    "MALFORMED_RECORD_IN_PARSING",
    "MALFORMED_VARIANT",
    "NULL_MAP_KEY",
    "NUMERIC_OUT_OF_SUPPORTED_RANGE",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "REMAINDER_BY_ZERO",
    "USER_RAISED_EXCEPTION",
    "VARIANT_SIZE_LIMIT",
)
# What Java raises without a class of Spark's: of `timestamp_seconds`, for example.
_JAVAS = ("ArithmeticException", "DateTimeException")


def error_class(problem: PySparkException) -> str | None:
    """Spark's class of an error that one record's values cause; None for any other error."""
    name, text = problem.getCondition() or "", f"{type(problem).__name__}: {problem}"
    return name if name.startswith(_OF_VALUES) else next((java for java in _JAVAS if java in text), None)


def failing_records(
    ranges: Mapping[TopicPartition, OffsetRange], probe: Callable[[Mapping[TopicPartition, OffsetRange]], None]
) -> dict[Coordinates, str]:
    """The records on which the transform fails, found by bisection of the ranges.

    Args:
        probe: evaluates the transform on these ranges; raises PySparkException if it fails.

    Raises:
        BadRecords: it fails on more than a few records.
    """
    found: dict[Coordinates, str] = {}
    for part, reason in failing(dict(ranges), _halves, probe):
        ((tp, only),) = ((tp, r) for tp, r in part.items() if len(r))
        found[tp.topic, tp.partition, only.start] = reason
        if len(found) > _MOST:
            raise BadRecords(
                f"the transform fails on more than {_MOST} records of one batch ({reason})",
                where=STAGE,
                remedy="use try_cast, try_divide and their like, or name bad records by a column `_refused`",
            )
    return found


def failing(
    whole: Part, halves: Callable[[Part], list[Part]], probe: Callable[[Part], None]
) -> Iterator[tuple[Part, str]]:
    """The smallest parts on which the transform fails, each with Spark's error class.

    Args:
        halves: divides a part; none if it is a single record.
        probe: evaluates the transform on a part; raises PySparkException if it fails.
    """
    todo = [whole]
    while todo:
        part = todo.pop()
        try:
            probe(part)
        except PySparkException as problem:
            reason = error_class(problem)
            if reason is None:
                raise
            smaller = halves(part)
            todo += smaller
            if not smaller:
                yield part, reason


def _halves(ranges: dict[TopicPartition, OffsetRange]) -> list[dict[TopicPartition, OffsetRange]]:
    """Two halves of the ranges, by partitions or by offsets; none for a single offset."""
    present = {tp: r for tp, r in ranges.items() if len(r)}
    if len(present) > 1:
        items = list(present.items())
        return [dict(items[: len(items) // 2]), dict(items[len(items) // 2 :])]
    ((tp, only),) = present.items()
    if len(only) == 1:
        return []
    middle = only.start + len(only) // 2
    return [{tp: OffsetRange(only.start, middle)}, {tp: OffsetRange(middle, only.end)}]

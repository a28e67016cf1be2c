"""Lands the offset ranges of a batch: Spark's tasks write files, which are counted and checked, but not published yet.

Used by landing, and by a replay from Kafka, whose records have places already. They differ in which records they write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.batch import Counts
from jobs.iceberg.append import Append
from jobs.landing.accounting import check, refuse_bad_records
from jobs.landing.batch_records import BatchRecords
from jobs.landing.task import Selection
from jobs.landing.task_report import TaskReport, sum_up
from jobs.offsets import total


@dataclass(frozen=True)
class LandedRanges:
    """What was written.

    Attributes:
        report: what the tasks found in the records.
        new_columns: columns that the records have brought, with their types; `int to long` if one became wider.
    """

    counts: Counts
    report: TaskReport = field(default_factory=TaskReport)
    new_columns: Mapping[str, str] = field(default_factory=dict)


def land_ranges(spark: SparkSession, records: BatchRecords, append: Append, selection: Selection) -> LandedRanges:
    """Writes the selected records of the batch to files that the append will commit; checks that none is missing.

    Raises:
        InvariantBroken: the counts do not add up. TopicRecreated: a topic was recreated while it was read.
    """
    reports = _write(spark, records, append, selection) if total(records.batch.ranges) else []
    found = sum_up(reports, records.batch.ranges, append.identifier)
    append.add(found.files)
    skip = not selection.bad_records
    return LandedRanges(check(records.batch, records.readings, append.identifier, found, append.rows, skip), found)


def judge(spark: SparkSession, records: BatchRecords, where: str, landed: LandedRanges) -> None:
    """Judges the bad records of the pass whose files are committed: an earlier one may have had others.

    Raises:
        BadRecords: the policy is `fail`, or there are too many.
    """
    waiting = landed.report.moves.waiting
    refuse_bad_records(records.spec, records.batch, landed.counts, where, lambda: records.bad(spark), waiting)


def _write(spark: SparkSession, records: BatchRecords, append: Append, selection: Selection) -> list[TaskReport]:
    try:
        return records.write(spark, append.identifier, selection, append.files)
    except PySparkException as problem:
        records.find_failing(spark, problem)
        return records.write(spark, append.identifier, selection, append.files)

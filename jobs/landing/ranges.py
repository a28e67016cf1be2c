"""Landing the offset ranges of a batch: written to an attempt's branch, counted, checked, and not yet published.

Whatever reads a batch from Kafka does it here: landing into the intermediate table, landing straight into a
destination (`intermediate.direct`), and a replay from Kafka. They differ in which records they write, as which columns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from jobs.batch import Counts
from jobs.iceberg import spark_writes
from jobs.iceberg.attempt import Attempt
from jobs.landing.accounting import Written, check, refuse_bad_records
from jobs.landing.batch_records import BatchRecords
from jobs.landing.records import RecordReader
from jobs.landing.task_report import TaskReport, sum_up
from jobs.offsets import total

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class Selection:
    """Which of the shaped records are written, and as which columns.

    Attributes:
        operations: the ops whose records are written; any other op counts as filtered.
        bad_records: dead letters are written.
        columns: landed rows to rows of the table that is written.
        only_missing: `columns` leaves out rows that the table has already, so that fewer may be written than selected.
    """

    operations: tuple[str, ...]
    bad_records: bool
    columns: Callable[[DataFrame], DataFrame] = lambda rows: rows
    only_missing: bool = False


@dataclass(frozen=True)
class LandedRanges:
    """What was written to the branch.

    Attributes:
        report: what the tasks found in the records.
    """

    counts: Counts
    report: TaskReport = field(default_factory=TaskReport)


def land_ranges(
    spark: SparkSession, records: BatchRecords, attempt: Attempt, selection: Selection, skip: bool
) -> LandedRanges:
    """Writes the selected records of the batch to the attempt's branch, and checks that none is missing.

    Args:
        skip: nothing is kept of bad records, here or elsewhere: they count as skipped, not as quarantined.

    Raises:
        InvariantBroken: the counts do not add up. BadRecords: the policy is `fail`, or there are too many.
        TopicRecreated: while they were read.
    """
    written = _write(spark, records, attempt, selection)
    records.check_topics()
    elsewhere = 0 if selection.bad_records or skip else written.quarantined
    selected = written.landed + written.quarantined
    added = selected if selection.only_missing else attempt.added_rows() + elsewhere
    counts = check(records.batch, attempt.identifier, written, added, skip)
    refuse_bad_records(records.spec, records.batch, counts, attempt.identifier, lambda: records.bad(spark))
    return LandedRanges(counts, written.report)


def _write(spark: SparkSession, records: BatchRecords, attempt: Attempt, selection: Selection) -> Written:
    """Appends the selected records of the batch to the attempt's branch, in one pass over Kafka."""
    if not total(records.batch.ranges):
        return Written()
    shaped = records.shaped(spark)
    counted = Observation()
    op, error = F.col("op"), F.col("error")
    wanted = F.coalesce(op.isin(*selection.operations), F.lit(False)) if selection.operations else F.lit(False)
    what = _counts(wanted)
    selected = shaped.observe(counted, *what).where(wanted | (error.isNotNull() & F.lit(selection.bad_records)))
    rows = selection.columns(selected)
    try:
        spark_writes.append(rows, attempt.path, attempt.summary)
    except PySparkException as problem:
        records.find_failing(spark, problem)
        return _write(spark, records, attempt, selection)
    # Spark Connect waits 100 ms for what was observed and then answers without it; a loaded server can be later than
    # that (seen). The same counts then come from a second look at the same ranges, which is slower and as good.
    found = counted.get or _count(shaped, what, attempt)
    report = sum_up(found["reports"].splitlines())
    return Written(report, found["landed"], found["quarantined"], found["filtered"])


def _count(shaped: DataFrame, what: list[Column], attempt: Attempt) -> dict[str, Any]:
    _LOG.info("%s: the server gave no counts with the write; reading the ranges again", attempt.identifier)
    return shaped.agg(*what).collect()[0].asDict()


def _counts(wanted: Column) -> list[Column]:
    """What is counted over the shaped rows, each on its own."""
    op, error = F.col("op"), F.col("error")
    is_report = op == RecordReader.REPORT
    reports = F.collect_list(F.when(is_report, F.col("kafka.topic")))
    return [
        F.array_join(reports, "\n").alias("reports"),
        F.count_if(wanted).alias("landed"),
        F.count_if(error.isNotNull()).alias("quarantined"),
        F.count_if(op.isNotNull() & ~is_report & ~wanted).alias("filtered"),
    ]

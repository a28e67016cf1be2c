"""Lands the offset ranges of a batch: Spark's tasks write files, which are counted and checked, but not published yet.

Used by landing, and by a replay from Kafka, whose records have places already. They differ in which records they write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.batch import Counts
from jobs.iceberg.append import Append
from jobs.landing.batch_records import BatchRecords
from jobs.landing.full_columns import full_columns
from jobs.landing.task import Selection
from jobs.landing.task_report import TaskReport, check, sum_up
from jobs.offsets import total
from resources.errors import BadRecords


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
    """Stops a batch with bad records if the policy is `fail`, or if there are more than the limits allow.

    Only those of the pass whose files are committed: an earlier one may have had others. No limit counts those that are
    landed again as soon as their values are known. The error is terminal, since a retry gives the same result. Problems
    that may pass (a schema registry that is down) are transient errors where they happen, and never count as bad
    records.

    Raises:
        BadRecords: nothing was published. Names the first bad records.
    """
    found, spec = landed.counts.quarantined + landed.counts.skipped, records.spec
    limit = spec.dead_letters.refused(found - landed.report.moves.waiting, landed.counts.read)
    if not found or not (limit or spec.on_bad_record == "fail"):
        return
    place, error = F.col("kafka"), F.col("error")
    columns = place["topic"], place["partition"], place["offset"], error["stage"], error["message"]
    first = records.bad(spark).orderBy("i").select(*columns).limit(3).collect()
    shown = "; ".join(f"{topic}-{p}@{offset} {stage}: {said}" for topic, p, offset, stage, said in first)
    raise BadRecords(
        f"{records.batch} has {found} bad records{f', {limit}' if limit else ''}, for example {shown}",
        where=where,
        remedy="correct the producer or the declared columns, or "
        + ("raise the limits in `dead_letters`" if limit else "set `on_bad_record: quarantine`"),
        quarantined=found,
    )


def _write(spark: SparkSession, records: BatchRecords, append: Append, selection: Selection) -> list[TaskReport]:
    files = replace(append.files, full=full_columns(records.spec))
    try:
        return records.write(spark, selection, files)
    except PySparkException as problem:
        records.find_failing(spark, problem)
        return records.write(spark, selection, files)

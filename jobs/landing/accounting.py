"""Checks the counts of a landed batch before it is published; each is counted independently."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.batch import Batch, Counts
from jobs.landing.task_report import TaskReport
from jobs.spec.pipeline import PipelineSpec
from resources.errors import BadRecords, InvariantBroken


def check(batch: Batch, readings: int, where: str, found: TaskReport, added_rows: int, skip: bool = False) -> Counts:
    """The batch's counts, if they add up: records read, their outcomes, and rows of the new files.

    Args:
        readings: upper bound of the records.
        found: the report of all tasks; records were counted before they were decoded, and each outcome on its own.
        added_rows: rows of the data files that were written, from their metadata.
        skip: bad records are not landed (`on_bad_record: skip`).

    Raises:
        InvariantBroken: the counts do not add up; nothing was published.
    """
    counts = Counts(
        read=found.records,
        landed=found.outcomes.landed,
        quarantined=0 if skip else found.outcomes.quarantined,
        filtered=found.outcomes.filtered,
        gaps=readings - found.records,
        skipped=found.outcomes.quarantined if skip else 0,
    )
    expected = counts.landed + counts.quarantined
    if not counts.balanced or counts.gaps < 0 or added_rows != expected:
        raise InvariantBroken(
            f"{batch}: {counts.read} records were read, {counts.landed} landed, {counts.quarantined} quarantined, "
            f"{counts.skipped} skipped, {counts.filtered} filtered and {added_rows} written; nothing was published",
            where=where,
            remedy="run again; if it happens again, report it with the Spark server's log",
        )
    return counts


def refuse_bad_records(
    spec: PipelineSpec, batch: Batch, counts: Counts, where: str, bad: Callable[[], DataFrame], waiting: int
) -> None:
    """Stops a batch with bad records if the policy is `fail`, or if there are more than the limits allow.

    The error is terminal, since a retry gives the same result. Problems that may pass (a schema registry that is down)
    are transient errors where they happen, and never count as bad records.

    Args:
        bad: reads the batch's bad rows; called only to name the first of them.
        waiting: bad records that are landed again as soon as their values are known; no limit counts them.

    Raises:
        BadRecords: nothing was published. Names the first bad records.
    """
    found = counts.quarantined + counts.skipped
    limit = spec.dead_letters.refused(found - waiting, counts.read)
    if not found or not (limit or spec.on_bad_record == "fail"):
        return
    place, error = F.col("kafka"), F.col("error")
    first = (
        bad().orderBy("i").select(place["topic"], place["partition"], place["offset"], error["stage"], error["message"])
    )
    shown = "; ".join(
        f"{topic}-{p}@{offset} {stage}: {said}" for topic, p, offset, stage, said in first.limit(3).collect()
    )
    raise BadRecords(
        f"{batch} has {found} bad records{f', {limit}' if limit else ''}, for example {shown}",
        where=where,
        remedy="correct the producer or the declared columns, or raise the limits in `dead_letters`"
        if limit
        else "correct the producer or the declared columns, or set `on_bad_record: quarantine`",
        quarantined=found,
    )

"""Accounting of a landed batch: counted on its own at each place, then checked, before anything is published."""

from __future__ import annotations

from pyspark.sql import SparkSession

from jobs.batch import Batch, Counts
from jobs.landing.writing import Written
from jobs.offsets import total
from jobs.spec.pipeline import PipelineSpec
from resources.errors import BadRecords, InvariantBroken
from sql import render


def check(batch: Batch, where: str, written: Written, added_rows: int) -> Counts:
    """The batch's counts, if they add up: what was read, what became of it, and what the branch's files hold.

    Args:
        added_rows: rows of the data files that were written, from their metadata.

    Raises:
        InvariantBroken: they do not; nothing was published.
    """
    counts = Counts(
        read=written.read,
        landed=written.landed,
        quarantined=written.quarantined,
        filtered=written.filtered,
        gaps=total(batch.ranges) - written.read,
    )
    expected = written.landed + written.quarantined
    if not counts.balanced or counts.gaps < 0 or added_rows != expected:
        raise InvariantBroken(
            f"{batch}: {counts.read} records were read, {counts.landed} landed, {counts.quarantined} quarantined, "
            f"{counts.filtered} filtered and {added_rows} written; nothing was published",
            where=where,
            remedy="run again; if it stays, report it with the Spark server's log",
        )
    return counts


def refuse_bad_records(
    spec: PipelineSpec, batch: Batch, quarantined: int, where: str, spark: SparkSession, table: tuple[str, ...]
) -> None:
    """Stops a batch with bad records where the policy is to fail; says where the first of them are.

    Raises:
        BadRecords: nothing was published.
    """
    if not quarantined or spec.on_bad_record != "fail":
        return
    first = spark.sql(render("spark", "bad_records", table=table), args={"batch": batch.number, "most": 3}).collect()
    shown = "; ".join(
        f"{row['topic']}-{row['partition']}@{row['offset']} {row['stage']}: {row['message']}" for row in first
    )
    raise BadRecords(
        f"{batch} has {quarantined} bad records, for example {shown}",
        where=where,
        remedy="mend the producer or the declared columns, or set `on_bad_record: quarantine`",
        quarantined=quarantined,
    )

"""Accounting of a landed batch: counted on its own at each place, then checked, before anything is published."""

from __future__ import annotations

from pyspark.sql import SparkSession

from jobs.batch import Batch, Counts
from jobs.landing.writing import Written
from jobs.offsets import TopicPartition, total
from jobs.spec.pipeline import PipelineSpec
from resources.errors import BadRecords, InvariantBroken
from sql import render


def count(
    spark: SparkSession, table: tuple[str, ...], batch: Batch, written: Written
) -> tuple[Counts, dict[TopicPartition, int]]:
    """The batch's counts and, per topic-partition, the newest record timestamp (milliseconds).

    Landed and quarantined rows are counted in the table as written; read and filtered ones where they went by.
    """
    rows = spark.sql(render("spark", "landed_counts", table=table), args={"batch": batch.number}).collect()
    quarantined = sum(row["quarantined"] for row in rows)
    counts = Counts(
        read=written.read,
        landed=sum(row["rows"] for row in rows) - quarantined,
        quarantined=quarantined,
        filtered=written.filtered,
        gaps=total(batch.ranges) - written.read,
    )
    return counts, {TopicPartition(row["topic"], row["partition"]): row["newest"] for row in rows}


def check(
    spec: PipelineSpec, where: str, spark: SparkSession, table: tuple[str, ...], batch: Batch, counts: Counts
) -> None:
    """Stops a batch whose counts do not add up, or that has bad records where the policy is to fail."""
    if not counts.balanced or counts.gaps < 0:
        raise InvariantBroken(
            f"{batch}: {counts.read} records were read, but {counts.landed} landed, {counts.quarantined} quarantined "
            f"and {counts.filtered} filtered; nothing was published",
            where=where,
            remedy="run again; if it stays, report it with the Spark server's log",
        )
    if counts.quarantined and spec.on_bad_record == "fail":
        first = spark.sql(
            render("spark", "bad_records", table=table), args={"batch": batch.number, "most": 3}
        ).collect()
        shown = "; ".join(
            f"{row['topic']}-{row['partition']}@{row['offset']} {row['stage']}: {row['message']}" for row in first
        )
        raise BadRecords(
            f"{batch} has {counts.quarantined} bad records, for example {shown}",
            where=where,
            remedy="mend the producer or the declared columns, or set `on_bad_record: quarantine`",
            quarantined=counts.quarantined,
        )

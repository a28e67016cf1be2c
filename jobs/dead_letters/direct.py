"""Trying dead letters again where the destination itself is landed (`intermediate.direct`).

The good ones are appended to the destination, those only whose coordinates it lacks, in one commit that is refused
where anything else was committed meanwhile; then they go from the table of dead letters. So a retry that dies in
between is made up for by the next one, which finds the rows there and appends nothing.
"""

from __future__ import annotations

from collections import Counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.batch import CommittedState
from jobs.changes.columns import ROWS
from jobs.dead_letters.listing import ALL
from jobs.dead_letters.redecode import VIEW, Tried, mended_summary, redecode, write_back
from jobs.failpoints import failpoint
from jobs.iceberg import snapshot_summary
from jobs.iceberg.attempt import Attempt
from jobs.landing.direct import DirectLanding
from jobs.pipeline import Pipeline
from resources.spark import spark_errors
from sql import quote, render


def mend_direct(pipeline: Pipeline, place: DirectLanding) -> Tried | None:
    """One try; None where no batch is committed yet.

    Raises:
        CommitFailed: somebody else was faster; nothing was done twice.
    """
    committed = place.destination.committed()
    pipeline.check_generation(committed)
    kept = place.dead_letters
    if committed is None:
        return None
    with spark_errors(kept.identifier):
        attempt = Attempt(kept.catalog, kept.identifier, kept.pipeline, None)
        spark = pipeline.spark("dead-letters", kept.catalog, place.catalog)
        letters = _of_committed(spark, attempt, committed)
        with redecode(pipeline, spark, letters, committed, attempt.schema) as tried:
            if tried.tried:
                _append(pipeline, spark, place, committed)
                failpoint("mend.published")
            if tried.changed is None:
                attempt.discard()
                return tried
            write_back(spark, pipeline, attempt, attempt.summary, tried.changed, elsewhere=True)
    attempt.publish_head({}, {})
    failpoint("mend.replayed")
    return tried


def _of_committed(spark: SparkSession, attempt: Attempt, committed: CommittedState) -> DataFrame:
    """Letters of records that the destination has taken, or left out, in a batch that is committed.

    By offset: dead letters are published before their batch, which may be cut otherwise when it is landed after all.
    """
    text = render("spark", "dead_letters", table=attempt.path, values=True, headers=True)
    letters = spark.sql(text, args={"first": 0, "last": committed.batch_number, "most": ALL})
    rows = [(tp.topic, tp.partition, end) for tp, end in committed.offsets.items()]
    ends = spark.createDataFrame(rows, "`topic` string, `partition` int, `end` bigint")
    same = (letters["topic"] == ends["topic"]) & (letters["partition"] == ends["partition"])
    return letters.join(ends, same & (letters["offset"] < ends["end"]), "left_semi")


def _append(pipeline: Pipeline, spark: SparkSession, place: DirectLanding, committed: CommittedState) -> None:
    """Appends the good letters that the destination lacks."""
    attempt = place.destination.attempt(committed)
    good = spark.table(VIEW).where(F.col("error").isNull() & F.col("op").isin(*ROWS))
    there = spark.table(quote("spark", attempt.path)).select("_topic", "__partition", "_offset")
    missing = good.join(
        there,
        (good["kafka.topic"] == there["_topic"])
        & (good["kafka.partition"] == there["__partition"])
        & (good["kafka.offset"] == there["_offset"]),
        "left_anti",
    )
    by_batch = Counter({row["batchNumber"]: row["count"] for row in missing.groupBy("batchNumber").count().collect()})
    if not by_batch:
        attempt.discard()
        return
    summary = mended_summary(pipeline, attempt, committed, by_batch)
    snapshot_summary.append(place.rows_for(attempt)(missing), attempt.path, summary)
    failpoint("mend.written")
    # On its base only: two retries at once must not both append the same rows.
    attempt.publish_head(summary, {})

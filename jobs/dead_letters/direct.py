"""Retries dead letters where batches are landed straight into the destination (`intermediate.direct`).

Those that can be read now are appended to the destination, unless it has a row of their coordinates, in one commit that
is refused if anything else was committed meanwhile. Then they are deleted from the table of dead letters. A retry that
dies in between is finished by the next one, which finds the rows there and appends nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.batch import CommittedState
from jobs.changes.columns import ROWS
from jobs.dead_letters.listing import ALL
from jobs.dead_letters.redecode import VIEW, Redecoded, recovered_summary, redecode, write_back
from jobs.failpoints import failpoint
from jobs.iceberg import spark_writes
from jobs.iceberg.attempt import Attempt
from jobs.landing.direct import DirectLanding
from jobs.pipeline import Pipeline
from resources.errors import ConfigurationError
from resources.spark import spark_errors
from sql import quote, render


def recover_direct(pipeline: Pipeline, landing: DirectLanding) -> Redecoded | None:
    """One attempt; None where no batch is committed yet.

    Raises:
        CommitFailed: another writer was faster; nothing was done twice.
    """
    committed = landing.committed()
    pipeline.check_generation(committed)
    table = landing.dead_letters
    if committed is None:
        return None
    with spark_errors(table.identifier):
        attempt = Attempt(table.catalog, table.identifier, table.pipeline, None)
        spark = pipeline.spark("dead-letters", table.catalog, landing.catalog)
        letters = _of_committed(spark, attempt, committed, landing.present_since())
        with redecode(pipeline, spark, letters, committed, attempt.schema) as redecoded:
            if redecoded.tried:
                _append(pipeline, spark, landing, committed)
                failpoint("retry.published")
            if redecoded.changed is None:
                attempt.discard()
                return redecoded
            write_back(spark, pipeline, attempt, attempt.summary, redecoded.changed, elsewhere=True)
    attempt.publish_head({}, {})
    failpoint("retry.replayed")
    return redecoded


def _of_committed(
    spark: SparkSession, attempt: Attempt, committed: CommittedState, present_since: Mapping[str, int]
) -> DataFrame:
    """Dead letters of records of the present topics, in a batch that is committed.

    By offset: dead letters are published before their batch, which may be cut otherwise when it is landed after all.
    """
    text = render("spark", "dead_letters", table=attempt.path, values=True, headers=True)
    letters = spark.sql(text, args={"first": 0, "last": committed.batch_number, "most": ALL})
    rows = [(tp.topic, tp.partition, end, present_since.get(tp.topic, 0)) for tp, end in committed.offsets.items()]
    ends = spark.createDataFrame(rows, "`topic` string, `partition` int, `end` bigint, `first` bigint")
    same = (letters["topic"] == ends["topic"]) & (letters["partition"] == ends["partition"])
    taken = (letters["offset"] < ends["end"]) & (letters["batch"] >= ends["first"])
    return letters.join(ends, same & taken, "left_semi")


def _append(pipeline: Pipeline, spark: SparkSession, landing: DirectLanding, committed: CommittedState) -> None:
    """Appends the good letters that the destination lacks."""
    attempt = landing.destination.attempt(committed)
    good = spark.table(VIEW).where(F.col("error").isNull() & F.col("op").isin(*ROWS))
    there = spark.table(quote("spark", attempt.path))
    for topic, first in landing.present_since().items():
        if "_batch" not in attempt.schema.names:
            raise ConfigurationError(
                f"{topic} was recreated, and nothing in a row says which topic of that name it is from",
                where=landing.identifier,
                remedy="replay from Kafka into a new table with `metadata_columns: [topic, partition, offset, batch]`",
            )
        there = there.where((F.col("_topic") != topic) | (F.col("_batch") >= first))
    there = there.select("_topic", "__partition", "_offset")
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
    summary = recovered_summary(pipeline, attempt, committed, by_batch)
    spark_writes.append(landing.rows_for(attempt)(missing), attempt.path, summary)
    failpoint("retry.written")
    # On its base only: two retries at once must not both append the same rows.
    attempt.publish_head(summary, {})

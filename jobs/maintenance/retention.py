"""Retention of landed batches: their age, and what every table has merged, decide which are removed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.batch import CommittedState, LandedBatch
from jobs.changes.columns import REVISION
from jobs.dead_letters.listing import open_dead_letters
from jobs.dead_letters.open_count import balance_without, keep_count
from jobs.dead_letters.topic import DeadLetterTopic
from jobs.failpoints import failpoint
from jobs.iceberg.landed_batches import landed_batches
from jobs.iceberg.table_property import KEPT_FROM
from jobs.lineage import RecreatedTopics, bound_topics
from jobs.maintenance.maintained_table import MaintainedTable, milliseconds_ago
from jobs.maintenance.report import GaveWay
from jobs.maintenance.snapshots import expirable, expire_these
from jobs.pipeline import Pipeline
from jobs.spec.maintenance import Landed
from jobs.verify.stale_keys import stale_before
from resources.errors import BatchmergeError
from resources.spark_errors import spark_errors
from sql import quote, render

_LOG = logging.getLogger("batchmerge")


def first_kept(
    landed: Sequence[LandedBatch],
    committed: Sequence[CommittedState | None],
    before: int,
    unsent: Sequence[int] = (),
) -> LandedBatch | None:
    """The oldest landed batch that has to be kept; all before it may be removed. None if nothing is landed.

    The newest batch is always kept, since the tables' lineage ends in it.

    Args:
        landed: ascending.
        committed: of every table; None: the table has no batch yet and needs all of them.
        before: batches that were planned at this time (milliseconds) or later are kept.
        unsent: the first batches with dead letters that are still to be sent to their topic.
    """
    merged = min((state.batch_number if state else 0 for state in committed), default=0)
    # Merged batches may still be needed: by a batch that revises them, and that a table has not merged yet.
    wanted = [b.batch.revises for b in landed if b.number > merged and b.batch.revises is not None]
    merged = min([merged, *(first - 1 for first in [*wanted, *unsent])])
    for batch in landed[:-1]:
        if batch.number > merged or batch.batch.planned_at >= before:
            return batch
    return landed[-1] if landed else None


def retire(spark: SparkSession, pipeline: Pipeline, maintained: MaintainedTable, options: Landed) -> Mapping[str, int]:
    """Removes old batches, then expires their snapshots and deletes their rows.

    The batches are removed by one commit, which requires the table's head as it was when the decision was made, and
    moves it: so records that are read again meanwhile either keep the batches that they need, or are refused and read
    again. If a run dies afterwards, the rows are of unknown batches, which are never read, and the next maintenance
    deletes them.

    Raises:
        GaveWay: a table's state cannot be read, or Kafka's position of sent dead letters; nothing was removed.
        CommitFailed: another run landed meanwhile; nothing was removed.
    """
    before = milliseconds_ago(timedelta(days=options.keep_days))
    # First, since it takes longer than anything else. Both only go forward.
    committed, unsent = _committed(pipeline), _unsent(pipeline)
    table = maintained.load()
    landed = landed_batches(table, pipeline.name).batches
    oldest = first_kept(landed, committed, before, unsent)
    if oldest is None:
        return {}
    if removed := [batch for batch in landed if batch.number < oldest.number]:
        properties = KEPT_FROM.written(oldest.number, pipeline.name)
        properties |= balance_without(pipeline.intermediate, table, removed)
        for destination, state in zip(pipeline.destinations(), committed, strict=True):
            properties |= stale_before(pipeline, destination.table, state, landed, oldest.number, spark)
        maintained.replace_head(table, properties=properties)
    failpoint("maintenance.forgotten")
    metadata = maintained.load().metadata
    ids = expirable(metadata, maintained.branch, milliseconds_ago(timedelta()), 1, oldest.snapshot_id)
    expired = expire_these(spark, maintained, ids) if ids and maintained.may_delete_files() else {}
    known = pipeline.intermediate.landed().batches
    rows = _delete(spark, maintained, known[0].number, recreated=pipeline.intermediate.recreated())
    if options.dead_letters_keep_days is not None:  # else never, since nobody may have read them yet
        instant = datetime.now(UTC) - timedelta(days=options.dead_letters_keep_days)
        # A dead letter that is still to be sent to its topic is taken from here.
        rows += _delete(spark, maintained, instant, dead_letters=True, unsent=min(unsent, default=None))
    _count_dead_letters(spark, pipeline)
    return {"batches removed": len(landed) - len(known), "batches kept": len(known), "rows deleted": rows, **expired}


def _committed(pipeline: Pipeline) -> list[CommittedState | None]:
    states = []
    for destination in pipeline.destinations():
        try:
            states.append(destination.committed())
        except BatchmergeError as problem:
            raise GaveWay(
                f"all landed batches are kept, because the state of {destination.name} cannot be read: {problem}",
                where=f"pipeline {pipeline.name}",
            ) from problem
    return states


def _unsent(pipeline: Pipeline) -> list[int]:
    """The first batches with dead letters that are still to be sent: landed ones, and those of each table."""
    if pipeline.spec.dead_letters.topic is None:
        return []
    try:
        found = [DeadLetterTopic(pipeline, by).first_unsent() for by in (None, *pipeline.destinations())]
    except BatchmergeError as problem:
        raise GaveWay(
            f"all landed batches are kept, because it is not known which dead letters were sent: {problem}",
            where=f"pipeline {pipeline.name}",
        ) from problem
    first = [number for number in found if number is not None]
    if first:
        _LOG.warning(
            "%s: dead letters of batch %d are not sent to %s yet; this batch and newer ones are kept until they are",
            pipeline.name,
            min(first),
            pipeline.spec.dead_letters.topic,
        )
    return first


def _count_dead_letters(spark: SparkSession, pipeline: Pipeline) -> None:
    """Stores how many more dead letters are open than the remaining batches have, since `status` starts no Spark."""
    with spark_errors(pipeline.intermediate.identifier):
        count = open_dead_letters(pipeline, spark).count()
    keep_count(pipeline.intermediate, count)


def _delete(
    spark: SparkSession,
    maintained: MaintainedTable,
    below: int | datetime,
    recreated: RecreatedTopics = MappingProxyType({}),
    dead_letters: bool = False,
    unsent: int | None = None,
) -> int:
    """Deletes the rows of batches below a number, or the dead letters that were landed before an instant.

    Args:
        unsent: no dead letters that were read in this batch or later.
    """
    column = "landedAt" if dead_letters else "batchNumber"
    path = maintained.catalog.spark_path(maintained.identifier)
    bad = F.col("error").isNotNull() if dead_letters else F.col("error").isNull()
    if unsent is not None:
        bad &= F.coalesce(REVISION.name, "batchNumber") < unsent
    with spark_errors(maintained.identifier):
        table = spark.table(quote("spark", path))
        rows: int = table.where((F.col(column) < F.lit(below)) & bad).count()
        if rows:
            # Not by the batches that are known: some may be removed, and have their rows still.
            revised = not dead_letters and bool(table.where(F.col(REVISION.name).isNotNull()).head(1))
            text = render(
                "spark",
                "delete_landed",
                table=path,
                column=column,
                dead_letters=dead_letters,
                revised=revised,
                recreated=list(recreated.values()),
                unsent=unsent is not None,
            )
            topics = bound_topics(recreated) if revised else {}
            sent = {} if unsent is None else {"unsent": unsent}
            spark.sql(text, args={"below": below, **topics, **sent})
    return rows

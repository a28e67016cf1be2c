"""Stale keys: the table lacks their newest change, so that it has an older row of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pyspark.sql import SparkSession

from jobs.batch import CommittedState, LandedBatch
from jobs.changes.columns import operations
from jobs.changes.routing import route_filter
from jobs.changes.unchanged_columns import may_leave_unchanged
from jobs.dead_letters.open_count import open_count
from jobs.destinations.base import Destination
from jobs.lineage import of_one_meaning
from jobs.own_views import own_views
from jobs.pipeline import Pipeline
from resources.spark import spark_errors
from sql import render


def stale_keys(
    pipeline: Pipeline,
    destination: Destination,
    state: CommittedState | None,
    known: Sequence[LandedBatch],
    session: Callable[[], SparkSession],
) -> int:
    """The number of stale keys of a table of upserts at its committed state; 0 for other tables.

    Counts the keys of open dead letters with a readable key, and of rows that the table refused. Costs nothing if there
    are none, else a scan of the keys landed since the first of them.

    Args:
        known: the landed batches.
        session: opens the table's session, if keys are counted.
    """
    if state is None or not destination.table.has_unique_key:
        return 0
    landed = of_one_meaning([b for b in known if b.number <= state.batch_number])
    if not landed:
        return 0
    # Nothing removes refused rows of older batches, whose landed rows retention has removed.
    refused_in = [n for n in destination.refused() if landed[0].number <= n <= landed[-1].number]
    with_dead_letters = [b for b in landed if b.counts.quarantined]
    if with_dead_letters and not open_count(pipeline.intermediate):
        with_dead_letters = []
    first = first_missing(with_dead_letters, refused_in)
    if first is None:
        return 0
    places, spark = destination.refused_places(session) if refused_in else None, session()
    with spark_errors(destination.name), own_views(spark, "refused") as refused:
        if places is not None:
            places.createOrReplaceTempView(*refused)
        route = route_filter(pipeline.spec, destination.table)
        text = render(
            "spark",
            "stale_keys",
            table=pipeline.intermediate.path,
            snapshot=pipeline.intermediate.snapshot_with(landed[-1]),
            until=landed[-1].number,
            revised=any(b.batch.revises is not None for b in landed),
            refused=refused if places is not None else None,
            operations=operations(destination.table),
            route=route,
            ordered=pipeline.spec.changes.ordered_by is not None,
            leaves_unchanged=may_leave_unchanged(pipeline.spec, destination.table, pipeline.intermediate),
        )
        first = max(first, landed[0].number)
        bound = {"first": first, "last": landed[-1].number, **(route.parameters if route else {})}
        found = spark.sql(text, args=bound).first()
    return int(found["keys"]) if found else 0


def first_missing(with_dead_letters: Sequence[LandedBatch], refused: Collection[int]) -> int | None:
    """The first batch that may have a change that the table lacks; None: there is none.

    Args:
        with_dead_letters: batches that had some when they were landed. Those of records that were read again keep the
            numbers of their first readings.
        refused: batches with rows that the table refused.
    """
    return min([*(landed.batch.first_number for landed in with_dead_letters), *refused], default=None)

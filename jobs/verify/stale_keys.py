"""Stale keys: the table lacks their newest change, so that it has an older row of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from jobs.batch import CommittedState, LandedBatch
from jobs.changes.routing import route_filter
from jobs.changes.unchanged_columns import may_leave_unchanged
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

    Counts the keys of dead letters with a readable key, and of rows that the table refused. Costs nothing if there are
    none, else a scan of the landed keys.

    Args:
        known: the landed batches.
        session: opens the table's session, if keys are counted.
    """
    if state is None or not destination.table.mode.startswith("upsert"):
        return 0
    landed = of_one_meaning([b for b in known if b.number <= state.batch_number])
    places = destination.refused_places(session)
    if not landed or not (places or any(b.counts.quarantined for b in landed)):
        return 0
    spark = session()
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
            mode=destination.table.mode,
            route=route,
            leaves_unchanged=may_leave_unchanged(pipeline.spec, destination.table, pipeline.intermediate),
        )
        bound = {"first": landed[0].number, "last": landed[-1].number, **(route.parameters if route else {})}
        found = spark.sql(text, args=bound).first()
    return int(found["keys"]) if found else 0

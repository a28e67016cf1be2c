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
from jobs.iceberg import table_property
from jobs.landing.intermediate import IntermediateTable
from jobs.lineage import of_one_meaning
from jobs.pipeline import Pipeline
from jobs.spark.own_views import own_views
from jobs.spec.tables import Table
from resources.spark_errors import spark_errors
from sql import render

# The most places of removed batches that are kept for a table.
_MOST = 200


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
    before = _before(pipeline.intermediate, destination.table, landed)
    # Nothing removes refused rows of older batches, whose landed rows retention has removed.
    refused_in = [n for n in destination.refused() if landed[0].number <= n <= landed[-1].number]
    with_dead_letters = [b for b in landed if b.counts.quarantined]
    if (with_dead_letters or before) and not open_count(pipeline.intermediate):
        with_dead_letters, before = [], []
    # After removed batches any landed one may have the later change of a key.
    first = landed[0].number if before else first_missing(with_dead_letters, refused_in)
    if first is None:
        return 0
    places, spark = destination.refused_places(session) if refused_in else None, session()
    with spark_errors(destination.name), own_views(spark, "refused") as refused:
        if places is not None:
            places.createOrReplaceTempView(*refused)
        named = refused if places is not None else None
        text, bound = _statement(pipeline, destination.table, landed, first, before, refused=named)
        found = spark.sql(text, args=bound).first()
    return int(found["keys"]) if found else 0


def stale_before(
    pipeline: Pipeline,
    table: Table,
    state: CommittedState | None,
    known: Sequence[LandedBatch],
    oldest: int,
    spark: SparkSession,
) -> dict[str, str]:
    """The property of the intermediate table that belongs into the commit that removes the batches before `oldest`: the
    dead letters of these batches without a later change of their key. With the rows of the batches it could no longer
    be known that there was one. Refused rows are not kept, since theirs are removed.

    Args:
        state: the table's committed state.
        known: the landed batches before the removal.
    """
    landed = of_one_meaning([b for b in known if state and b.number <= state.batch_number])
    if not landed or not table.has_unique_key:
        return {}
    before = _before(pipeline.intermediate, table, landed)
    first = first_missing([b for b in landed if b.counts.quarantined], ())
    if not before and (first is None or first >= oldest):
        return {}
    pipeline.resolve()
    with spark_errors(pipeline.intermediate.identifier):
        first = landed[0].number if before or first is None else first
        text, bound = _statement(pipeline, table, landed, first, before, below=oldest)
        found = [(row["batchNumber"], row["i"]) for row in spark.sql(text, args=bound).collect()]
    kept = {"meaning": landed[-1].batch.meaning_hash, "places": found}
    return table_property.stale_before(table.title).written(kept, pipeline.name)


def _before(place: IntermediateTable, table: Table, landed: Sequence[LandedBatch]) -> list[tuple[int, int]]:
    """The places, batch and `i`, that `stale_before` has kept; of the same meaning as these batches."""
    if landed[0].number == 1:  # nothing was ever removed
        return []
    kept = table_property.stale_before(table.title).read(
        place.catalog.require(place.identifier).properties, place.pipeline
    )
    same = kept.get("meaning") == landed[-1].batch.meaning_hash
    return [(batch, i) for batch, i in kept["places"]] if same else []


def _statement(
    pipeline: Pipeline,
    table: Table,
    landed: Sequence[LandedBatch],
    first: int,
    before: Sequence[tuple[int, int]],
    refused: Sequence[str] | None = None,
    below: int | None = None,
) -> tuple[str, dict[str, object]]:
    route = route_filter(pipeline.spec, table)
    text = render(
        "spark",
        "stale_keys",
        table=pipeline.intermediate.path,
        snapshot=pipeline.intermediate.snapshot_with(landed[-1]),
        until=landed[-1].number,
        revised=any(b.batch.revises is not None for b in landed),
        refused=refused,
        before=before,
        below=below,
        most=_MOST,
        operations=operations(table),
        route=route,
        ordered=pipeline.spec.changes.ordered_by is not None,
        leaves_unchanged=may_leave_unchanged(pipeline.spec, table, pipeline.intermediate),
    )
    first = max(first, landed[0].number)
    return text, {"first": first, "last": landed[-1].number, **(route.parameters if route else {})}


def first_missing(with_dead_letters: Sequence[LandedBatch], refused: Collection[int]) -> int | None:
    """The first batch that may have a change that the table lacks; None: there is none.

    Args:
        with_dead_letters: batches that had some when they were landed. Those of records that were read again keep the
            numbers of their first readings.
        refused: batches with rows that the table refused.
    """
    return min([*(landed.batch.first_number for landed in with_dead_letters), *refused], default=None)

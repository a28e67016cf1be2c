"""All tasks of maintenance on one table, one after the other; each is off or on in the pipeline's file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from jobs.destinations.base import Destination
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.landing.direct import DirectLanding
from jobs.landing.intermediate import IntermediateTable
from jobs.maintenance.branches import sweep
from jobs.maintenance.compaction import compact
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.maintenance.manifests import rewrite_manifests
from jobs.maintenance.orphans import remove_orphans
from jobs.maintenance.report import Done, do
from jobs.maintenance.retention import retire, retire_dead_letters
from jobs.maintenance.snapshots import expire
from jobs.pipeline import Pipeline
from jobs.spec.maintenance import CleanUp
from jobs.spec.tables import BigQueryTable

LANDING = "maintenance of landing"

_Task = tuple[str, bool, Callable[[], Mapping[str, int]]]


def maintain_landing(pipeline: Pipeline) -> Iterator[Done]:
    """The intermediate table; of a pipeline with `intermediate.direct` the table of its dead letters."""
    place, options = pipeline.intermediate, pipeline.spec.maintenance
    direct = isinstance(place, DirectLanding)
    table = place.dead_letters if isinstance(place, DirectLanding) else place
    assert isinstance(table, IntermediateTable)
    kept = MaintainedTable(
        pipeline=pipeline.name,
        catalog=table.catalog,
        identifier=table.identifier,
        branch="main",
        merged=False,
        sort_by=("batchNumber", "i"),
        attempt_seconds=pipeline.spec.batch.time_limit_seconds,
    )
    if not kept.exists():
        return
    spark = pipeline.spark(LANDING, table.catalog)
    landed = options.landed
    retention = (
        partial(retire_dead_letters, spark, kept, landed) if direct else partial(retire, spark, pipeline, kept, landed)
    )
    yield from _done(kept.identifier, [("landed", landed.enabled, retention)])
    known = [] if direct else pipeline.intermediate.landed()[0]
    yield from _iceberg(pipeline, kept, LANDING, known[0].snapshot_id if known else None)


def maintain_table(pipeline: Pipeline, destination: Destination) -> Iterator[Done]:
    """A destination table, in whatever system it is."""
    options = pipeline.spec.maintenance.clean_up
    if isinstance(destination, IcebergDestination):
        yield from _iceberg_tables(pipeline, destination)
    elif destination.committed() is not None:
        yield from _done(destination.name, [("clean_up", options.enabled, partial(_clean_up, destination, options))])


def _clean_up(destination: Destination, options: CleanUp) -> Mapping[str, int]:
    # Client libraries are imported only for the systems that a pipeline uses.
    if isinstance(destination.table, BigQueryTable):
        from jobs.destinations.bigquery.destination import BigQueryDestination

        assert isinstance(destination, BigQueryDestination)
        return destination.clean_up()
    from jobs.destinations.clickhouse.destination import ClickHouseDestination

    assert isinstance(destination, ClickHouseDestination)
    if not destination.layout.versioned:
        return {}
    destination.clean_up(deletes=options.deletes and not destination.layout.ordered)
    return {"endpoints": len(destination.shards)}


def _iceberg_tables(pipeline: Pipeline, destination: IcebergDestination) -> Iterator[Done]:
    """The table, and the one that remembers the order of deletes where there is one."""
    table = destination.table
    role = role_of(destination)
    for identifier, branch in ((table.table, table.branch), (destination.tombstones, "main")):
        if identifier is None:
            continue
        kept = MaintainedTable(
            pipeline=pipeline.name,
            catalog=destination.catalog,
            identifier=identifier,
            branch=branch,
            merged=table.needs_key,
            sort_by=(),
            attempt_seconds=table.time_limit_seconds,
        )
        if kept.exists():
            yield from _iceberg(pipeline, kept, role, None)


def role_of(destination: Destination) -> str:
    """The Spark session of a table's maintenance: not that of its merges, which a newer run interrupts."""
    return f"maintenance of {destination.name}"


def _iceberg(pipeline: Pipeline, kept: MaintainedTable, role: str, oldest_kept: int | None) -> Iterator[Done]:
    options = pipeline.spec.maintenance
    spark = pipeline.spark(role, kept.catalog)
    yield from _done(
        kept.identifier,
        [
            ("branches", options.orphans.enabled, lambda: sweep(kept, options.orphans)),
            ("compaction", options.compaction.enabled, lambda: compact(spark, kept, options.compaction)),
            ("manifests", options.manifests.enabled, lambda: rewrite_manifests(spark, kept, options.manifests)),
            (
                "snapshots",
                options.snapshots.enabled,
                lambda: expire(spark, kept, options.snapshots, options.orphans, oldest_kept),
            ),
            ("orphans", options.orphans.enabled, lambda: remove_orphans(spark, kept, options.orphans)),
        ],
    )


def _done(table: str, tasks: list[_Task]) -> Iterator[Done]:
    for name, enabled, work in tasks:
        if enabled:
            yield do(name, table, work)

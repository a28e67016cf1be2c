"""What dead letters there are: in the intermediate table, and beside ClickHouse tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from jobs.destinations.base import Destination
from jobs.pipeline import Pipeline
from resources.spark import spark_errors
from sql import render

if TYPE_CHECKING:
    from jobs.destinations.clickhouse.shard import Shard

# As many as there are (a LIMIT of Spark is an int), and the last batch that there could be.
ALL, LAST = 2**31 - 1, 2**62


@dataclass(frozen=True)
class Letter:
    """One dead letter. Key and value are absent unless they were asked for; the message never holds a value.

    Attributes:
        place: the table that it is in.
        i: order within the batch; None beside a ClickHouse table.
        stage: which part of the record: `key`, `value`, `transform`, `route`; or the destination.
    """

    place: str
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    batch: int
    i: int | None
    stage: str
    kind: str
    message: str
    key: bytes | None = None
    value: bytes | None = None


@dataclass(frozen=True)
class Group:
    """Dead letters of one table with the same stage and kind; `first` is where the first of them is in Kafka."""

    place: str
    stage: str
    kind: str
    records: int
    first: str
    message: str


def summary(pipeline: Pipeline) -> list[Group]:
    """Dead letters of all places, by stage and kind."""
    place = pipeline.intermediate
    found = []
    if _exists(pipeline):
        with spark_errors(place.identifier):
            rows = _session(pipeline).sql(render("spark", "quarantined", table=place.path)).collect()
        found = [Group(dead_letter_table(pipeline), **row.asDict()) for row in rows]
    return [*found, *(group for d in pipeline.destinations() for group in _side_table_groups(d))]


def letters(
    pipeline: Pipeline,
    most: int,
    values: bool = False,
    first: int = 0,
    last: int = LAST,
    spark: SparkSession | None = None,
) -> Iterator[Letter]:
    """Landed dead letters of batches `first` to `last`, in their order; with key and value where asked for."""
    if not _exists(pipeline):
        return
    where = dead_letter_table(pipeline)
    text = render("spark", "dead_letters", table=pipeline.intermediate.path, values=values, headers=False)
    with spark_errors(where):
        rows = (spark or _session(pipeline)).sql(text, args={"first": first, "last": last, "most": most})
        for row in rows.toLocalIterator():
            fields = row.asDict()
            for name in ("key", "value"):
                if fields.get(name) is not None:
                    fields[name] = bytes(fields[name])
            yield Letter(place=where, **fields)


def side_table_letters(destination: Destination, most: int, values: bool = False) -> Iterator[Letter]:
    """Rows that a ClickHouse table could not take; nothing for other kinds of tables."""
    for shard in _shards(destination):
        text = render("clickhouse", "dead_letters_rows", table=shard.statements.dead_letters, values=values)
        for row in shard.server.rows(text, {"most": most}):
            said = f"{row['reason']} ({row['declared']} to {row['wanted']})" if row["wanted"] else row["reason"]
            yield Letter(
                place=".".join(shard.statements.dead_letters),
                topic=row["topic"],
                partition=row["partition"],
                offset=row["offset"],
                timestamp=None,
                batch=row["batch"],
                i=None,
                stage=destination.name,
                kind="Unfit",
                message=f"{row['column']}: {said}" if row["column"] else said,
                value=row["row"].encode() if values else None,
            )


def dead_letter_table(pipeline: Pipeline) -> str:
    """The Iceberg table of the dead letters: those of its rows whose `error` is not null."""
    return ".".join(pipeline.intermediate.path[1:])


def _exists(pipeline: Pipeline) -> bool:
    table = pipeline.intermediate.catalog.load(dead_letter_table(pipeline))
    return table is not None and table.current_snapshot() is not None


def _session(pipeline: Pipeline) -> SparkSession:
    return pipeline.spark("dead-letters", pipeline.intermediate.catalog)


def _side_table_groups(destination: Destination) -> Iterator[Group]:
    for shard in _shards(destination):
        text = render("clickhouse", "dead_letters_summary", table=shard.statements.dead_letters)
        for row in shard.server.rows(text):
            yield Group(
                place=".".join(shard.statements.dead_letters),
                stage=destination.name,
                kind="Unfit",
                records=row["records"],
                first=row["first"],
                message=f"{row['column']}: {row['reason']}" if row["column"] else row["reason"],
            )


def _shards(destination: Destination) -> Iterator[Shard]:
    if destination.table.kind != "clickhouse":
        return
    # The client is imported only for pipelines that use it.
    from jobs.destinations.clickhouse.destination import ClickHouseDestination

    assert isinstance(destination, ClickHouseDestination)
    yield from (shard for shard in destination.shards if shard.has_dead_letters())

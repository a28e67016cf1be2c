"""What dead letters there are: in the intermediate table, and in side tables of destinations."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
from jobs.pipeline import Pipeline
from resources.spark import spark_errors
from sql import render

# As many as there are (a LIMIT of Spark is an int), and the last batch that there could be.
ALL, LAST = 2**31 - 1, 2**62


def summary(pipeline: Pipeline) -> list[DeadLetterGroup]:
    """Dead letters of the intermediate table and of all side tables, by stage and kind."""
    found = []
    if _exists(pipeline):
        with spark_errors(dead_letter_table(pipeline)):
            text = render("spark", "quarantined", table=pipeline.intermediate.path)
            rows = _session(pipeline).sql(text).collect()
        found = [DeadLetterGroup(dead_letter_table(pipeline), **row.asDict()) for row in rows]
    return [*found, *(group for d in pipeline.destinations() for group in d.dead_letter_groups())]


def letters(
    pipeline: Pipeline,
    most: int,
    values: bool = False,
    first: int = 0,
    last: int = LAST,
    spark: SparkSession | None = None,
) -> Iterator[DeadLetter]:
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
            yield DeadLetter(table=where, **fields)


def dead_letter_table(pipeline: Pipeline) -> str:
    """The Iceberg table of the dead letters: those of its rows whose `error` is not null."""
    return ".".join(pipeline.intermediate.path[1:])


def _exists(pipeline: Pipeline) -> bool:
    table = pipeline.intermediate.catalog.load(dead_letter_table(pipeline))
    return table is not None and table.current_snapshot() is not None


def _session(pipeline: Pipeline) -> SparkSession:
    return pipeline.spark("dead-letters", pipeline.intermediate.catalog)

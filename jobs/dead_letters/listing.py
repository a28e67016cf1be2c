"""What dead letters there are: in the intermediate table, and in side tables of destinations."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from jobs.changes.columns import REVISION
from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
from jobs.pipeline import Pipeline
from resources.spark import spark_errors
from sql import render

# As many as there are (a LIMIT of Spark is an int), and the last batch that there could be.
ALL, LAST = 2**31 - 1, 2**62


def summary(pipeline: Pipeline) -> list[DeadLetterGroup]:
    """Dead letters of the intermediate table and of all side tables, by stage and kind."""
    found = []
    table = _table(pipeline)
    if table is not None:
        with spark_errors(pipeline.intermediate.identifier):
            revised = _is_revised(table)
            text = render("spark", "quarantined", table=pipeline.intermediate.path, revised=revised)
            rows = _session(pipeline).sql(text).collect()
        found = [DeadLetterGroup(pipeline.intermediate.identifier, **row.asDict()) for row in rows]
    return [*found, *(group for d in pipeline.destinations() for group in d.dead_letter_groups())]


def letters(pipeline: Pipeline, most: int, values: bool = False) -> Iterator[DeadLetter]:
    """At most so many landed dead letters, in their order; with key and value where asked for."""
    table = _table(pipeline)
    if table is None:
        return
    where, revised = pipeline.intermediate.identifier, _is_revised(table)
    text = render(
        "spark", "dead_letters", table=pipeline.intermediate.path, values=values, headers=False, revised=revised
    )
    with spark_errors(where):
        rows = _session(pipeline).sql(text, args={"first": 0, "last": LAST, "most": most})
        for row in rows.toLocalIterator():
            fields = row.asDict()
            for name in ("key", "value"):
                if fields.get(name) is not None:
                    fields[name] = bytes(fields[name])
            yield DeadLetter(table=where, **fields)


def open_letters(pipeline: Pipeline, spark: SparkSession, first: int = 0, last: int = LAST) -> DataFrame | None:
    """Rows of ``dead_letters.sql.j2`` with values and headers; None where nothing is landed."""
    table = _table(pipeline)
    if table is None:
        return None
    path, revised = pipeline.intermediate.path, _is_revised(table)
    text = render("spark", "dead_letters", table=path, values=True, headers=True, revised=revised)
    return spark.sql(text, args={"first": first, "last": last, "most": ALL})


def _table(pipeline: Pipeline) -> Table | None:
    table = pipeline.intermediate.catalog.load(pipeline.intermediate.identifier)
    return table if table is not None and table.current_snapshot() is not None else None


def _is_revised(table: Table) -> bool:
    """Records may have several readings; not in a table that an older version has made."""
    return any(field.name == REVISION.name for field in table.schema().fields)


def _session(pipeline: Pipeline) -> SparkSession:
    return pipeline.spark("dead-letters", pipeline.intermediate.catalog)

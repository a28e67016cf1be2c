"""Lists dead letters: of the intermediate table, and of destinations' side tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from jobs.changes.columns import MOVE
from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
from jobs.lineage import bound_topics
from jobs.pipeline import Pipeline
from sql import render

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Became = Literal["first", "again"]
# Higher than any batch number.
LAST = 2**62


def summary(pipeline: Pipeline) -> list[DeadLetterGroup]:
    """Dead letters of the intermediate table and of all side tables, by stage and kind."""
    found = []
    if _anything_landed(pipeline):
        from resources.spark_errors import spark_errors

        with spark_errors(pipeline.intermediate.identifier):
            text, topics = _of_open(pipeline, "quarantined")
            rows = _session(pipeline).sql(text, args=topics).collect()
        found = [DeadLetterGroup(pipeline.intermediate.identifier, **row.asDict()) for row in rows]
    return [*found, *(group for d in pipeline.destinations() for group in d.dead_letter_groups())]


def list_dead_letters(pipeline: Pipeline, most: int, values: bool = False) -> Iterator[DeadLetter]:
    """At most `most` landed dead letters, in their order; with key and value if `values` is true."""
    if not _anything_landed(pipeline):
        return
    where = pipeline.intermediate.identifier
    shown = {"values": values, "headers": False, "moves": False, "limited": True}
    text, topics = _of_open(pipeline, "dead_letters", became=None, **shown)
    from resources.spark_errors import spark_errors

    with spark_errors(where):
        rows = _session(pipeline).sql(text, args={"first": 0, "last": LAST, "most": most, **topics})
        for row in rows.toLocalIterator():
            fields = row.asDict()
            for name in ("key", "value"):
                if fields.get(name) is not None:
                    fields[name] = bytes(fields[name])
            yield DeadLetter(table=where, **fields)


def open_dead_letters(
    pipeline: Pipeline, spark: SparkSession, first: int = 0, last: int = LAST, became: Became | None = None
) -> DataFrame:
    """Rows of ``dead_letters.sql.j2`` with values, headers and moves, in any order. Something must be landed.

    Args:
        became: only those that became dead letters when these batches read their records first, or again. None: all of
            these batches' records.
    """
    place = pipeline.intermediate
    moves = MOVE.name in place.catalog.require(place.identifier).schema().column_names
    shown = {"values": True, "headers": True, "moves": moves, "limited": False}
    text, topics = _of_open(pipeline, "dead_letters", became=became, **shown)
    return spark.sql(text, args={"first": first, "last": last, **topics})


def _of_open(pipeline: Pipeline, template: str, **said: object) -> tuple[str, dict[str, str]]:
    """A statement about dead letters whose records were not read again, and its topic parameters."""
    recreated, path = pipeline.intermediate.recreated(), pipeline.intermediate.path
    text = render("spark", template, table=path, recreated=list(recreated.values()), **said)
    return text, bound_topics(recreated)


def _anything_landed(pipeline: Pipeline) -> bool:
    table = pipeline.intermediate.catalog.load(pipeline.intermediate.identifier)
    return table is not None and table.current_snapshot() is not None


def _session(pipeline: Pipeline) -> SparkSession:
    return pipeline.spark("dead-letters", pipeline.intermediate.catalog)

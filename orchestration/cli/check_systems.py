"""For `batchmerge check`: do the systems that a pipeline file names answer, and do they have what it names?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from jobs.landing.transform import analyse
from jobs.members.members import Members
from jobs.pipeline import Pipeline
from jobs.time_limit import with_timeout
from resources.errors import BatchmergeError
from resources.spark_errors import spark_errors
from sql import quote

_LIMIT = 30
Answer = tuple[str, BatchmergeError | None]
"""What was queried, and its error; None: it is right."""


def ask_pipeline(pipeline: Pipeline) -> Iterator[Answer]:
    """Queries every system that the pipeline names."""
    destinations = pipeline.destinations()
    yield _answer("topics in Kafka", pipeline.topic_state, pipeline)
    yield from _ask_shared(pipeline)
    yield _answer(pipeline.intermediate.identifier, pipeline.intermediate.committed, pipeline)
    for destination in destinations:
        yield _answer(destination.name, partial(destination.prepare, dry_run=True), pipeline)


def ask_members(members: Members) -> Iterator[Answer]:
    """Queries Kafka once for all topics, and the systems of the tables once for each table."""
    try:
        seen = with_timeout(_LIMIT, "topics in Kafka", members.look)
    except BatchmergeError as problem:
        yield "topics in Kafka", problem
        return
    yield f"{len(seen.members)} topics in Kafka", None
    yield from ((f"topic {topic}", problem) for topic, problem in seen.failed.items())
    if not seen.members:
        return
    yield from _ask_shared(members.open(seen.members[0]))

    def tables(pipeline: Pipeline) -> list[str]:
        pipeline.intermediate.committed()
        return [step for destination in pipeline.destinations() for step in destination.prepare(dry_run=True)]

    wrong = [outcome for outcome in members.each("check", seen.members, tables) if outcome.problem]
    yield from ((f"topic {one.key}", one.problem) for one in wrong)
    if not wrong:
        yield f"tables of {len(seen.members)} topics", None


def _ask_shared(pipeline: Pipeline) -> Iterator[Answer]:
    """Queries what all topics of a pipeline share: registries, Spark, the transform."""
    for name, registry in pipeline.intermediate.registries.by_name.items():
        yield _answer(f"Schema Registry {name}", registry.answers, pipeline)
    yield _answer("Spark", lambda: _reach_tables(pipeline), pipeline)
    if pipeline.spec.source.transform:
        yield _answer("transform in Spark", lambda: _analyse(pipeline), pipeline)


def _reach_tables(pipeline: Pipeline) -> None:
    """Spark has credentials of its own for the catalog and its store. Of the landed table it reads one small file."""
    catalog, identifier = pipeline.intermediate.catalog, pipeline.intermediate.identifier
    with spark_errors(f"Spark, {identifier}"):
        spark, table = pipeline.spark("check", catalog), quote("spark", catalog.spark_path(identifier))
        spark.sql("SELECT 1").collect()
        if spark.catalog.tableExists(table):
            spark.table(f"{table}.manifests").limit(1).collect()


def _analyse(pipeline: Pipeline) -> None:
    with spark_errors("transform"):
        analyse(pipeline.spark("check", pipeline.intermediate.catalog), pipeline.spec.source)


def _answer(what: str, ask: Callable[[], object], pipeline: Pipeline) -> Answer:
    try:
        pipeline.in_time(_LIMIT, what, ask, "check")
    except BatchmergeError as problem:
        return what, problem
    return what, None

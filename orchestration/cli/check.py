"""`batchmerge check`: are the files right, and do the systems that they name answer?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from jobs.destinations.base import Destination
from jobs.destinations.registry import kind_of
from jobs.landing.transform import analyse
from jobs.members import Members
from jobs.pipeline import Pipeline
from jobs.time_limit import with_timeout
from orchestration.cli import output
from orchestration.files import open_members, open_pipeline, pipeline_file, pipeline_names
from resources.connections import Connections, load_connections
from resources.errors import BatchmergeError, TransientError
from resources.spark import spark_errors

_LIMIT = 30
Question = tuple[str, Callable[[], object]]


@dataclass(frozen=True)
class _Answer:
    """What was looked at, and what is wrong with it; or what is probably not meant."""

    what: str
    problem: BatchmergeError | None = None
    warning: str | None = None


@click.command()
@click.argument("pipelines", nargs=-1)
@click.option("--files-only", is_flag=True, help="Read the files, ask no system.")
def check(pipelines: tuple[str, ...], files_only: bool) -> None:
    """Check the connections file and the pipeline files, and ask every system that they name.

    All pipelines, or only PIPELINES. Changes nothing. All mistakes in files are reported at once, each with line and
    column. Columns with rows that a table is certain to refuse are warned of. Exit code 2: something has to be mended;
    3: a system does not answer now.
    """
    found = list[_Answer]()
    connections: Connections | None = None
    try:
        connections = load_connections()
        found.append(_right("connections", f"{connections.origin}: {', '.join(connections.names())}"))
    except BatchmergeError as problem:
        found.append(_wrong("connections", problem))
    for name in pipelines or pipeline_names():
        found += _check(name, connections, files_only)
    output.result(found)
    problems = [answer.problem for answer in found if answer.problem]
    if problems:
        sys.exit(3 if all(isinstance(problem, TransientError) for problem in problems) else 2)


def _check(name: str, connections: Connections | None, files_only: bool) -> Iterator[_Answer]:
    try:
        if connections is None:
            pipeline_file(name)
            yield _right(f"pipeline {name}: file")
            return
        if members := open_members(name, connections):
            yield _right(f"pipeline {name}: file and connection names")
            yield from () if files_only else _check_members(members)
            return
        pipeline = open_pipeline(name, connections)
        destinations = pipeline.destinations()
    except BatchmergeError as problem:
        yield _wrong(f"pipeline {name}", problem)
        return
    yield _right(f"pipeline {name}: file and connection names")
    for destination in destinations:
        for warning in kind_of(destination.table).refuses(pipeline.spec, destination.table):
            yield _unlikely(f"pipeline {name}: {destination.name}", warning)
    for what, ask in [] if files_only else _questions(pipeline, destinations):
        yield _answer(f"pipeline {name}: {what}", ask, pipeline)


def _check_members(members: Members) -> Iterator[_Answer]:
    """Kafka is asked about all topics at once; the systems of the tables are asked about every table."""
    where = f"pipeline {members.name}"
    try:
        seen = with_timeout(_LIMIT, "topics in Kafka", members.look)
    except BatchmergeError as problem:
        yield _wrong(f"{where}: topics in Kafka", problem)
        return
    yield _right(f"{where}: {len(seen.members)} topics in Kafka")
    yield from (_wrong(f"{where}: topic {topic}", problem) for topic, problem in seen.failed.items())
    if not seen.members:
        return
    first = members.open(seen.members[0])
    for what, ask in _shared_questions(first):
        yield _answer(f"{where}: {what}", ask, first)

    def tables(pipeline: Pipeline) -> list[str]:
        pipeline.intermediate.committed()
        return [step for destination in pipeline.destinations() for step in destination.prepare(dry_run=True)]

    wrong = [outcome for outcome in members.each("check", seen.members, tables) if outcome.problem]
    yield from (_wrong(f"{where}: topic {one.topic}", one.problem) for one in wrong if one.problem)
    if not wrong:
        yield _right(f"{where}: tables of {len(seen.members)} topics")


def _questions(pipeline: Pipeline, destinations: list[Destination]) -> Iterator[Question]:
    """What every system that the pipeline names is asked."""
    yield "topics in Kafka", pipeline.topic_state
    yield from _shared_questions(pipeline)
    yield pipeline.intermediate.identifier, pipeline.intermediate.committed
    for destination in destinations:
        yield destination.name, _dry_run(destination)


def _shared_questions(pipeline: Pipeline) -> Iterator[Question]:
    """What members of a pipeline have in common."""
    for name, registry in pipeline.registries().items():
        yield f"Schema Registry {name}", registry.subjects
    yield "Spark", lambda: pipeline.spark("check").sql("SELECT 1").collect()
    if pipeline.spec.source.transform:
        yield "transform in Spark", lambda: _analyse(pipeline)


def _analyse(pipeline: Pipeline) -> None:
    with spark_errors("transform"):
        analyse(pipeline.spark("check"), pipeline.spec.source)


def _dry_run(destination: Destination) -> Callable[[], object]:
    return lambda: destination.prepare(dry_run=True)


def _answer(what: str, ask: Callable[[], object], pipeline: Pipeline) -> _Answer:
    try:
        with_timeout(_LIMIT, what, ask, lambda: pipeline.interrupt("check"))
    except BatchmergeError as problem:
        return _wrong(what, problem)
    return _right(what)


def _right(what: str, more: str = "") -> _Answer:
    output.say(f"ok    {more or what}")
    return _Answer(what)


def _unlikely(what: str, warning: str) -> _Answer:
    """What is no mistake, and probably not meant."""
    output.say(f"WARN  {what}: {warning}")
    return _Answer(what, warning=warning)


def _wrong(what: str, problem: BatchmergeError) -> _Answer:
    output.say(f"WRONG {what}: {problem}")
    return _Answer(what, problem)

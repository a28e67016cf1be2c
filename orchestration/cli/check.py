"""`batchmerge check`: are the files right, and do the systems that they name answer?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import click

from jobs.destinations.base import Destination
from jobs.landing.transform import analyse
from jobs.pipeline import Pipeline
from jobs.time_limit import with_timeout
from orchestration.files import open_pipeline, pipeline_file, pipeline_names
from resources.connections import Connections, load_connections
from resources.errors import BatchmergeError, TransientError
from resources.spark import spark_errors

_LIMIT = 30
Question = tuple[str, Callable[[], object]]


@click.command()
@click.argument("pipelines", nargs=-1)
@click.option("--files-only", is_flag=True, help="Read the files, ask no system.")
def check(pipelines: tuple[str, ...], files_only: bool) -> None:
    """Check the connections file and the pipeline files, and ask every system that they name.

    All pipelines, or only PIPELINES. Changes nothing. All mistakes in files are reported at once, each with line and
    column. Exit code 2: something has to be mended; 3: a system does not answer now.
    """
    problems: list[BatchmergeError] = []
    connections: Connections | None = None
    try:
        connections = load_connections()
        click.echo(f"ok    {connections.origin}: {', '.join(connections.names())}")
    except BatchmergeError as problem:
        problems += _report("connections", problem)
    for name in pipelines or pipeline_names():
        try:
            if connections is None:
                pipeline_file(name)
                click.echo(f"ok    pipeline {name}: file")
                continue
            pipeline = open_pipeline(name, connections)
            destinations = pipeline.destinations()
        except BatchmergeError as problem:
            problems += _report(f"pipeline {name}", problem)
            continue
        click.echo(f"ok    pipeline {name}: file and connection names")
        for what, ask in [] if files_only else _questions(pipeline, destinations):
            problems += _answer(f"pipeline {name}: {what}", ask, pipeline)
    if problems:
        sys.exit(3 if all(isinstance(problem, TransientError) for problem in problems) else 2)


def _questions(pipeline: Pipeline, destinations: list[Destination]) -> Iterator[Question]:
    """What every system that the pipeline names is asked."""
    yield "topics in Kafka", pipeline.topic_state
    for name, registry in pipeline.registries().items():
        yield f"Schema Registry {name}", registry.subjects
    yield "Spark", lambda: pipeline.spark("check").sql("SELECT 1").collect()
    if pipeline.spec.source.transform:
        yield "transform in Spark", lambda: _analyse(pipeline)
    yield pipeline.intermediate.identifier, pipeline.intermediate.committed
    for destination in destinations:
        yield destination.name, _dry_run(destination)


def _analyse(pipeline: Pipeline) -> None:
    with spark_errors("transform"):
        analyse(pipeline.spark("check"), pipeline.spec.source)


def _dry_run(destination: Destination) -> Callable[[], object]:
    return lambda: destination.prepare(dry_run=True)


def _answer(what: str, ask: Callable[[], object], pipeline: Pipeline) -> list[BatchmergeError]:
    try:
        with_timeout(_LIMIT, what, ask, lambda: pipeline.interrupt("check"))
    except BatchmergeError as problem:
        return _report(what, problem)
    click.echo(f"ok    {what}")
    return []


def _report(what: str, problem: BatchmergeError) -> list[BatchmergeError]:
    click.echo(f"WRONG {what}: {problem}")
    return [problem]

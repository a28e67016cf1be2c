"""`batchmerge check`: are the files valid, and do the systems that they name answer?

This module reads the files, without Spark and clients. `orchestration.cli.check_systems` queries the systems.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from jobs.connections_file import load_connections
from jobs.destinations.registry import warnings_of
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from orchestration.cli import failure_code, output
from orchestration.files import (
    FOLDER,
    conflicts_of,
    open_members,
    open_pipeline,
    pipeline_file,
    pipeline_names,
    require_pipelines,
)
from resources.connections import Connections
from resources.errors import BatchmergeError, TransientError


@dataclass(frozen=True)
class _Answer:
    """One thing that was checked, with its error; or with a warning, if it is valid and probably not intended."""

    what: str
    problem: BatchmergeError | None = None
    warning: str | None = None
    _shown: str = ""

    @property
    def line(self) -> str:
        if self.problem:
            return f"WRONG {self.what}: {self.problem}"
        return f"WARN  {self.what}: {self.warning}" if self.warning else f"ok    {self._shown or self.what}"


@click.command()
@click.argument("pipelines", nargs=-1)
@click.option("--files-only", is_flag=True, help="Read the files only, query no system.")
def check(pipelines: tuple[str, ...], files_only: bool) -> None:
    """Check the connections file and the pipeline files, and query every system that they name.

    Checks all pipelines, or only PIPELINES. Changes nothing. Reports all mistakes in files at once, each with line and
    column. Warns of columns whose rows a table is certain to refuse. Exit code 2: you must fix something; 3: a system
    does not answer now.
    """
    found = list[_Answer]()
    for answer in _answers(pipelines, files_only):
        output.say(answer.line)
        found.append(answer)
    output.result(found)
    problems = [answer.problem for answer in found if answer.problem]
    if problems:
        sys.exit(failure_code(isinstance(problem, TransientError) for problem in problems))


def _answers(pipelines: Sequence[str], files_only: bool) -> Iterator[_Answer]:
    connections: Connections | None = None
    try:
        connections = load_connections()
        yield _Answer("connections", _shown=f"{connections.origin}: {', '.join(connections.names())}")
    except BatchmergeError as problem:
        yield _Answer("connections", problem)
    names = pipelines or pipeline_names()
    if not names:
        yield _no_pipelines()
    for name in names:
        yield from _check(name, connections, files_only)
    yield from (_Answer(f"pipeline {one.pipelines[1]}", one.problem) for one in conflicts_of(names))


def _no_pipelines() -> _Answer:
    """Nothing was checked: perhaps the folder is not the one that was meant."""
    try:
        require_pipelines(FOLDER)
    except BatchmergeError as problem:
        return _Answer("pipelines", problem)
    return _Answer("pipelines", warning=f"{FOLDER} has no pipeline file: nothing was checked")


def _check(name: str, connections: Connections | None, files_only: bool) -> Iterator[_Answer]:
    where = f"pipeline {name}"
    try:
        file = pipeline_file(name)
        if connections is None:
            yield _Answer(f"{where}: file")
            return
        file.check_connections(connections)
        yield _Answer(f"{where}: file and connection names")
        if not files_only:
            yield from _ask(name, connections)
        elif file.spec.source.for_each is None:
            yield from _warnings(where, file.spec, file.spec.tables)
    except BatchmergeError as problem:
        yield _Answer(where, problem)


def _ask(name: str, connections: Connections) -> Iterator[_Answer]:
    from orchestration.cli.check_systems import ask_members, ask_pipeline  # Spark and the clients

    where = f"pipeline {name}"
    if members := open_members(name, connections):
        answers = ask_members(members)
    else:
        pipeline = open_pipeline(name, connections)
        yield from _warnings(where, pipeline.spec, pipeline.tables)
        answers = ask_pipeline(pipeline)
    yield from (_Answer(f"{where}: {what}", problem) for what, problem in answers)


def _warnings(where: str, spec: PipelineSpec, tables: Sequence[Table]) -> Iterator[_Answer]:
    """What is valid and probably not intended."""
    for table in tables:
        for warning in warnings_of(spec, table):
            yield _Answer(f"{where}: {table.kind} {table.table}", warning=warning)

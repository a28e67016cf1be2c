"""The pipeline files of this project, read without Dagster: for the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from jobs.members.known_topics import known_members
from jobs.spec.members import SEPARATOR
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.pipeline_file import PipelineFile, is_pipeline, read_pipeline_file
from orchestration.between_files import Conflict, conflicts
from resources.errors import BatchmergeError, ConfigurationError, TransientError
from resources.project import definitions_folder, project_folder

T = TypeVar("T")

if TYPE_CHECKING:
    from jobs.members.members import Members
    from jobs.pipeline import Pipeline
    from resources.connections import Connections

VARIABLE = "BATCHMERGE_PIPELINES"
# The demo's pipeline files, for use outside of a project.
OWN_FOLDER = Path(__file__).parent / "defs"
# What Dagster calls a component's file; the first that a folder has counts.
_NAMES = ("defs.yaml", "defs.yml", "component.yaml")


def _folder() -> Path:
    """The folder of pipeline files: the one that `VARIABLE` names, else that of the current project."""
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    project = project_folder()
    return definitions_folder(project) if project else OWN_FOLDER


FOLDER = _folder()


def pipeline_names() -> list[str]:
    """The pipelines of the folder; other components of Dagster have `defs.yaml` files too."""
    return sorted({path.parent.name for path in _paths() if _may_be_pipeline(path)})


def _paths(folder: Path | None = None) -> list[Path]:
    """The files of the folder and of the folders in it, where Dagster looks for them too."""
    return sorted(_files_in(folder or FOLDER))


def file_in(folder: Path) -> Path | None:
    """The file of the component in this folder."""
    return next(filter(Path.exists, (folder / name for name in _NAMES)), None)


def _files_in(folder: Path) -> Iterator[Path]:
    """Also those in linked folders; none in hidden ones, in which Kubernetes keeps the files of a config map."""
    if file := file_in(folder):
        yield file
    for inner in folder.iterdir() if folder.is_dir() else ():
        if not inner.name.startswith((".", "__pycache__")) and inner.is_dir():
            yield from _files_in(inner)


def _path_of(name: str) -> Path | None:
    """The file of this pipeline; components of other kinds may have folders of the same name."""
    named = [path for path in _paths() if path.parent.name == name]
    return next(filter(_may_be_pipeline, named), named[0] if named else None)


def _may_be_pipeline(path: Path) -> bool:
    try:
        return is_pipeline(path)
    except ConfigurationError:
        return True  # reading it reports what is wrong


def require_pipelines(folder: Path) -> None:
    """Requires that the folder has something that Dagster can load: pipeline files, or Python modules.

    Raises:
        ConfigurationError: there is no such folder, or nothing in it.
    """
    if not folder.is_dir():
        remedy = f"make it, or change {VARIABLE}"
        raise ConfigurationError("the folder of pipeline files does not exist", where=str(folder), remedy=remedy)
    if not (_paths(folder) or any(folder.rglob("*.py"))):
        remedy = f"write {folder / '<pipeline>' / 'defs.yaml'} (`batchmerge infer` proposes one), or change {VARIABLE}"
        raise ConfigurationError("there is no pipeline file in the folder", where=str(folder), remedy=remedy)


def wrong_files(folder: Path) -> list[ConfigurationError]:
    """What is wrong in the pipeline files of a folder and the folders in it; files of other components are left out."""
    found, files = list[ConfigurationError](), list[PipelineFile]()
    for path in _paths(folder):
        try:
            if is_pipeline(path):
                files.append(read_pipeline_file(path))
        except ConfigurationError as problem:
            found.append(problem)
    return [*found, *(conflict.problem for conflict in conflicts(files, seen=False))]


def conflicts_of(names: Sequence[str]) -> list[Conflict]:
    """What is wrong between the files of these pipelines and all others of the folder that are right."""
    files = list[PipelineFile]()
    for path in _paths():
        with suppress(BatchmergeError):
            if is_pipeline(path):
                files.append(read_pipeline_file(path))
    wanted = {split_name(name)[0] for name in names}
    return [conflict for conflict in conflicts(files) if not wanted.isdisjoint(conflict.pipelines)]


def split_name(name: str) -> tuple[str, str | None]:
    """The pipeline that `shop` or `shop/shop.public.orders` names, and the topic, if it names one; also by the name
    that errors and metadata have, `shop__shop__public__orders`."""
    pipeline, _, topic = name.partition("/")
    if not topic and SEPARATOR in name and _path_of(name) is None:
        return next(filter(None, (_topic_called(name, one) for one in pipeline_names())), (name, None))
    return pipeline, topic or None


def _topic_called(name: str, pipeline: str) -> tuple[str, str] | None:
    """The pipeline and its known topic, if the topic's own pipeline has this name."""
    spec = readable_specs([pipeline]).get(pipeline) if name.startswith(f"{pipeline}{SEPARATOR}") else None
    if spec is None or spec.source.for_each is None:
        return None
    found = (one.key for one in known_members(pipeline, spec).members if one.name == name)
    return next(((pipeline, topic) for topic in found), None)


def pipeline_file(name: str) -> PipelineFile:
    """The file of this pipeline, or of the pipeline of this topic.

    Raises:
        ConfigurationError: there is no such pipeline. WrongFile: its file is wrong; one line a mistake.
    """
    name, topic = split_name(name)
    path = _path_of(name)
    if path is None:
        raise ConfigurationError(
            f"there is no pipeline named {name!r} (known: {', '.join(pipeline_names()) or 'none'})",
            where=str(FOLDER),
            remedy=f"write {FOLDER / name / 'defs.yaml'}, or name a known one",
        )
    file = read_pipeline_file(path)
    if topic is not None and file.spec.source.for_each is None:
        raise ConfigurationError(
            f"{topic} names a topic, but the topics of this pipeline go into the same tables",
            where=f"pipeline {name}",
            remedy=f"name {name} alone",
        )
    return file


def pipeline_spec(name: str) -> PipelineSpec:
    """What the file of this pipeline says. Raises as `pipeline_file` does."""
    return pipeline_file(name).spec


def paused_in_file(name: str, spec: PipelineSpec) -> str | None:
    """Why nothing of the pipeline starts by itself, if its file says so."""
    return f"{name} is paused (`paused: true` in its file)" if spec.paused else None


def readable_specs(names: Sequence[str]) -> dict[str, PipelineSpec]:
    """The files that can be read, by pipeline. Whoever opens one of the others reports what is wrong."""
    found = {}
    for name in names:
        with suppress(BatchmergeError):
            found[split_name(name)[0]] = pipeline_spec(name)
    return found


def open_pipeline(name: str, connections: Connections) -> Pipeline:
    """The pipeline with its connections; with `for_each` the member of one topic, `<pipeline>/<topic>`.

    Raises:
        ConfigurationError: there is no such pipeline, or no topic is named where one has to be. WrongFile: its file is
            wrong, or names connections that are not in the connections file.
    """
    members = open_members(name, connections)
    pipeline, topic = split_name(name)
    if members is not None:
        if topic is None:
            raise ConfigurationError(
                "each topic of this pipeline is a pipeline of its own (`source.for_each`)",
                where=f"pipeline {pipeline}",
                remedy=f"name one of them: {pipeline}/<topic>",
            )
        return members.open(members.member(topic))
    from jobs.pipeline import Pipeline  # imports Spark and the clients: only where a pipeline is opened

    return Pipeline(pipeline, pipeline_file(name).spec, connections)


def open_members(name: str, connections: Connections) -> Members | None:
    """The members of a pipeline with `for_each`, or only the one that is named; None without `for_each`.

    Raises as `open_pipeline` does.
    """
    file, (pipeline, topic) = pipeline_file(name), split_name(name)
    file.check_connections(connections)
    if file.spec.source.for_each is None:
        return None
    from jobs.members.members import Members

    return Members(pipeline, file.spec, connections, topics=[topic] if topic else [])


def each_pipeline(
    name: str, connections: Connections, work: Callable[[Pipeline], T | None]
) -> tuple[list[T], list[BatchmergeError]]:
    """Does the work for the pipeline; with `for_each` for all its members that are known, or for the one that is named.

    Returns:
        The results, in the order of the topics; the errors of topics that failed, which stop no other.

    Raises:
        BatchmergeError: the work fails for the only pipeline.
    """
    members = open_members(name, connections)
    if members is None or members.topics:
        done = work(open_pipeline(name, connections))
        return ([] if done is None else [done]), []
    known = members.known()
    found = {outcome.key: outcome for outcome in members.each("by-hand", known, work)}
    outcomes = [found[member.key] for member in known if member.key in found]
    return [o.done for o in outcomes if o.done is not None], [o.problem for o in outcomes if o.problem]


def most_terminal(failed: Sequence[BatchmergeError]) -> BatchmergeError | None:
    """The first error that a person has to fix, else the first one; None: nothing failed."""
    return next((p for p in failed if not isinstance(p, TransientError)), failed[0] if failed else None)


def raise_most_terminal(failed: Sequence[BatchmergeError]) -> None:
    """Raises the most terminal error and prints the others; returns if there is none."""
    raised = most_terminal(failed)
    for other in failed:
        if other is not raised:
            click.echo(str(other), err=True)
    if raised:
        raise raised

"""The pipeline files of this project, read without Dagster: for the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.spec.pipeline import PipelineSpec
from jobs.spec.pipeline_file import PipelineFile, is_pipeline, read_pipeline_file
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from jobs.pipeline import Pipeline
    from resources.connections import Connections

VARIABLE = "BATCHMERGE_PIPELINES"
# Where pipeline files are unless the variable names another folder.
OWN_FOLDER = Path(__file__).parent / "defs"
FOLDER = Path(os.environ.get(VARIABLE) or OWN_FOLDER).absolute()


def pipeline_names() -> list[str]:
    return sorted(path.parent.name for path in FOLDER.glob("*/defs.yaml"))


def require_pipelines(folder: Path) -> None:
    """Something is in the folder that Dagster can load: pipeline files, or Python modules.

    Raises:
        ConfigurationError: there is no such folder, or nothing in it.
    """
    if not folder.is_dir():
        remedy = f"make it, or change {VARIABLE}"
        raise ConfigurationError("there is no such folder of pipeline files", where=str(folder), remedy=remedy)
    if not any(any(folder.rglob(name)) for name in ("defs.yaml", "*.py")):
        remedy = f"write {folder / '<pipeline>' / 'defs.yaml'} (`batchmerge infer` proposes one), or change {VARIABLE}"
        raise ConfigurationError("there is no pipeline file in the folder", where=str(folder), remedy=remedy)


def wrong_files(folder: Path) -> list[ConfigurationError]:
    """What is wrong in the pipeline files of a folder and the folders in it; files of other components are left out."""
    found = []
    for path in sorted(folder.rglob("defs.yaml")):
        try:
            if is_pipeline(path):
                read_pipeline_file(path)
        except ConfigurationError as problem:
            found.append(problem)
    return found


def pipeline_file(name: str) -> PipelineFile:
    """The file of this pipeline.

    Raises:
        ConfigurationError: there is no such pipeline. WrongFile: its file is wrong; one line a mistake.
    """
    if name not in pipeline_names():
        raise ConfigurationError(
            f"there is no pipeline named {name!r} (known: {', '.join(pipeline_names()) or 'none'})",
            where=str(FOLDER),
            remedy=f"write {FOLDER / name / 'defs.yaml'}, or name a known one",
        )
    return read_pipeline_file(FOLDER / name / "defs.yaml")


def pipeline_spec(name: str) -> PipelineSpec:
    """What the file of this pipeline says. Raises as `pipeline_file` does."""
    return pipeline_file(name).spec


def open_pipeline(name: str, connections: Connections) -> Pipeline:
    """The pipeline with its connections.

    Raises:
        ConfigurationError: there is no such pipeline. WrongFile: its file is wrong, or names connections that are not
            in the connections file.
    """
    file = pipeline_file(name)
    file.check_connections(connections)
    from jobs.pipeline import Pipeline  # Spark and the tables: only for who opens one

    return Pipeline(name, file.spec, connections)

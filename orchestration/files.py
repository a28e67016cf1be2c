"""The pipeline files of this project, read without Dagster: for the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.spec.pipeline import PipelineSpec, load_pipeline_file
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


def pipeline_spec(name: str) -> PipelineSpec:
    """What the file of this pipeline says.

    Raises:
        ConfigurationError: no such pipeline, or its file is wrong.
    """
    if name not in pipeline_names():
        raise ConfigurationError(
            f"there is no pipeline named {name!r} (known: {', '.join(pipeline_names()) or 'none'})",
            where=str(FOLDER),
            remedy=f"write {FOLDER / name / 'defs.yaml'}, or name a known one",
        )
    return load_pipeline_file(FOLDER / name / "defs.yaml")[1]


def open_pipeline(name: str, connections: Connections) -> Pipeline:
    from jobs.pipeline import Pipeline  # Spark and the tables: only for who opens one

    return Pipeline(name, pipeline_spec(name), connections)

"""Reads the connections file: connections of the engine (`resources.connections`), and of each installed kind.

Its path is ``BATCHMERGE_CONNECTIONS``, else ``<data folder>/connections.yaml``, which `batchmerge up` writes; the data
folder is ``BATCHMERGE_HOME`` (default ``.batchmerge``).
"""

from __future__ import annotations

import os
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from jobs.destinations.registry import kinds
from resources.config_files.mistakes import Mistake
from resources.config_files.models import examine
from resources.config_files.positions import read_yaml_file
from resources.config_files.references import resolve
from resources.connections import (
    Connections,
    GlueSchemaRegistryConnection,
    IcebergConnection,
    KafkaConnection,
    SchemaRegistryConnection,
    SparkConnection,
    data_folder,
)
from resources.errors import ConfigurationError

CONNECTIONS = "BATCHMERGE_CONNECTIONS"
_SOURCES = (
    KafkaConnection,
    SparkConnection,
    IcebergConnection,
    SchemaRegistryConnection,
    GlueSchemaRegistryConnection,
)


@cache
def _file() -> type[BaseModel]:
    """The model of the connections file: Kafka, the intermediate table's catalog, and the systems of all kinds."""
    models: set[Any] = {*_SOURCES, *(kind.connection for kind in kinds().values())}
    one: Any = Annotated[reduce(or_, models), Field(discriminator="kind")]
    return create_model("_File", __config__=ConfigDict(extra="forbid"), connections=(dict[str, one], ...))


def connections_path() -> Path:
    named = os.environ.get(CONNECTIONS)
    return Path(named) if named else data_folder() / "connections.yaml"


def no_connections(path: Path) -> ConfigurationError | None:
    """The error if there is no such file."""
    if os.path.exists(path):
        return None
    by = "names it" if os.environ.get(CONNECTIONS) else "is not set, so it is looked for in the data folder"
    return ConfigurationError(
        f"the connections file does not exist ({CONNECTIONS} {by})",
        where=str(path),
        remedy=f"run `batchmerge up` for local services, or let {CONNECTIONS} name your file",
    )


def load_connections(path: Path | None = None) -> Connections:
    """Reads and resolves the connections file.

    Raises:
        ConfigurationError: there is no such file, or it cannot be read. WrongFile: one line for each mistake in it.
    """
    path = path or connections_path()
    if problem := no_connections(path):
        raise problem
    found = read_yaml_file(path)
    if not isinstance(found.data, dict):
        raise found.refusal([Mistake((), "there are no connections", "begin with `connections:`")])
    resolved, unresolved = resolve(found.data, ())
    # Values may be resolved secrets: do not show them.
    examined = examine(_file(), resolved, (mistake.path for mistake in unresolved), show_values=False)
    mistakes = [*found.mistakes, *unresolved, *examined.mistakes]
    if examined.value is None or mistakes:
        raise found.refusal(mistakes)
    return Connections(dict(examined.value)["connections"], str(path))

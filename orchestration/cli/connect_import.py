"""`batchmerge import`: a Kafka Connect sink becomes a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml

from jobs.connect_import import building, connect, offsets
from jobs.connect_import.building import Imported
from jobs.connect_import.configuration import Configuration, read_configuration
from jobs.connect_import.connector import filled_tables
from jobs.connect_import.writing import connections_file, pipeline_file, report
from jobs.connections_file import load_connections
from orchestration.cli import output
from orchestration.files import FOLDER
from resources.config_files.positions import shown_file
from resources.connections import Connections, KafkaConnection
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--columns", "value_columns", metavar="YAML", help="Columns of the values: '{id: long, name: string}'.")
@click.option("--key-columns", metavar="YAML", help="Columns of the keys, for a sink that upserts by them.")
@click.option("--table", "tables", multiple=True, help="Import only this table of the sink.")
@click.option("--offsets/--no-offsets", default=True, help="Take over where the connector stopped.", show_default=True)
@click.option("--write", is_flag=True, help="Write the pipeline file (<name>/defs.yaml) instead of printing it.")
def import_(
    file: Path,
    value_columns: str | None,
    key_columns: str | None,
    tables: tuple[str, ...],
    offsets: bool,
    write: bool,
) -> None:
    """Make a pipeline file from a Kafka Connect sink's configuration.

    FILE is JSON (flat, or with `name` and `config`) or properties. Reports the replacement of each option and
    transform. Stop the connector first: the pipeline begins where the connector stopped, so that no record is lost or
    written twice. Columns come from the connector's tables. Your connections file must have the connections of Kafka
    and of the tables: --no-offsets shows their entries.
    """
    configuration = read_configuration(file)
    given = _columns(value_columns, "--columns")
    connections = load_connections() if offsets else None
    keys, named = _columns(key_columns, "--key-columns"), list(tables)
    known, topics = filled_tables(configuration, connections, named) if connections and not given else ({}, [])
    imported = building.build(configuration, given, keys, named, known, topics)
    if connections:
        imported.document["source"]["start"] = _start(configuration, imported, connections)
    _show(imported, write)


def _show(imported: Imported, write: bool) -> None:
    for line in report(imported):
        output.say(line)
    output.say("\nEntries for the connections file:\n")
    output.say(connections_file(imported))
    path = FOLDER / imported.name / "defs.yaml"
    if not write:
        output.say(f"{shown_file(path)}:\n")
        output.say(pipeline_file(imported))
        output.result(_plain(imported, None))
        return
    if path.exists():
        raise ConfigurationError("the file exists", where=str(path), remedy="remove it, or rename the connector")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pipeline_file(imported))
    output.say(f"written to {path}; the pipeline is paused: delete `paused: true` after the first look")
    output.result(_plain(imported, path))


def _plain(imported: Imported, path: Path | None) -> dict[str, object]:
    texts = {"connections": connections_file(imported), "pipeline": pipeline_file(imported)}
    return {"name": imported.name, **texts, "report": list(report(imported)), "written": str(path) if path else None}


def _columns(text: str | None, option: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise click.UsageError(f"{option}: give names and types, for example '{{id: long, name: string}}'")
    return {str(name): str(kind) for name, kind in found.items()}


def _start(configuration: Configuration, imported: Imported, connections: Connections) -> dict[str, Any]:
    cluster = KafkaCluster("kafka", connections.get("kafka", KafkaConnection))
    source = imported.document["source"]
    topics = cluster.topics(source.get("topics", []), source.get("pattern"))
    _, partitions = cluster.describe(topics)
    found = offsets.stopped_at(cluster, configuration, connections, partitions)
    output.say(f"begins where group {connect.group(configuration)} stopped: {found}\n")
    return offsets.start(found.next)

"""A connector's configuration to a pipeline file, with what became of each option. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from jobs.moving import bigquery, clickhouse, connect, iceberg
from jobs.moving.configuration import Configuration
from jobs.moving.options import Option, Options, find, none
from jobs.spec import PipelineSpec
from resources.errors import ConfigurationError

CONNECTORS: Mapping[str, Options] = {
    iceberg.TABULAR: iceberg.OPTIONS,
    iceberg.APACHE: iceberg.OPTIONS,
    clickhouse.CLASS: clickhouse.OPTIONS,
    bigquery.CLASS: bigquery.OPTIONS,
}
PLACEHOLDER = {"fill_in": "string"}


@dataclass(frozen=True)
class Told:
    """An option that was given, and what became of it."""

    name: str
    option: Option


@dataclass(frozen=True)
class Imported:
    """A pipeline file in the making.

    Attributes:
        document: its `attributes`.
        connections: entries for the connections file, secrets as references to the environment.
        told: every option that was given.
        todo: what a person has to look at before the pipeline runs.
    """

    name: str
    document: dict[str, Any]
    connections: dict[str, dict[str, Any]]
    told: list[Told]
    todo: list[str]


def build(
    configuration: Configuration,
    columns: Mapping[str, str] | None = None,
    key_columns: Mapping[str, str] | None = None,
    tables: list[str] | None = None,
) -> Imported:
    """The pipeline that does what the connector did.

    Args:
        columns: of the records' values; where they are not known the file gets a placeholder.
        key_columns: of the records' keys, for a BigQuery sink that upserts.
        tables: names of tables, for a sink that takes them from its records.

    Raises:
        ConfigurationError: not one of the known connectors, or it cannot become one pipeline.
    """
    kind = configuration.text("connector.class")
    if kind not in CONNECTORS:
        raise ConfigurationError(
            f"{kind} is not a connector that can be imported",
            where=configuration.name,
            remedy=f"it must be one of {', '.join(CONNECTORS)}",
        )
    told = [Told(name, _fate(name, CONNECTORS[kind])) for name in sorted(configuration.options)]
    module, topics = _module(kind), configuration.items("topics")
    todo = connect.transforms(configuration)
    parts, own_todo = (
        iceberg.tables(configuration, tables or [])
        if module is iceberg
        else clickhouse.tables(configuration, topics)
        if module is clickhouse
        else bigquery.tables(configuration, topics)
    )
    changes = _changes(configuration, kind, key_columns or {})
    found_columns = dict(columns or PLACEHOLDER)
    if not columns:
        todo.append("source.value.columns: declare the columns of the records (--columns); `fill_in` is a placeholder")
        needed = [*iceberg.key_columns(configuration)] if module is iceberg else []
        needed += [f for f in (configuration.text("iceberg.tables.cdc-field"),) if f and needed]
        needed += _routing_fields(configuration) if module is iceberg else []
        found_columns = {**dict.fromkeys(needed, "string"), **found_columns}
    source, source_todo = connect.source(configuration, found_columns, dict(changes.pop("key_format", {})))
    document = {
        "description": f"Was the connector {configuration.name}.",
        "source": source,
        **module.document(configuration),
        **changes,
        "tables": parts,
        **connect.errors(configuration),
        "paused": True,
    }
    _merge_dead_letters(document)
    return Imported(
        name=pipeline_name(configuration.name),
        document=document,
        connections=_connections(configuration, module.connections(configuration)),
        told=told,
        todo=[*todo, *own_todo, *source_todo, *_spec_problems(document)],
    )


def pipeline_name(name: str) -> str:
    """The connector's name with what a pipeline's name cannot have replaced."""
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    return plain if re.match(r"[a-z]", plain) else f"p_{plain}"


def _fate(name: str, options: Options) -> Option:
    return find(name, options, connect.OPTIONS) or none("not an option that the connector is known to have")


def _module(kind: str) -> Any:
    return {clickhouse.CLASS: clickhouse, bigquery.CLASS: bigquery}.get(kind, iceberg)


def _changes(configuration: Configuration, kind: str, key: Mapping[str, str]) -> dict[str, Any]:
    """The `changes` part of a BigQuery sink that upserts: its keys are the records' keys."""
    if kind != bigquery.CLASS or bigquery.document(configuration).get("changes") is None:
        return {}
    columns = dict(key) or {"id": "string"}
    several = len(configuration.items("topics")) > 1
    return {
        "key_format": columns,
        "changes": {"key": {"columns": list(columns)}, **({"order_by": "arrival"} if several else {})},
    }


def _routing_fields(configuration: Configuration) -> list[str]:
    field = configuration.text("iceberg.tables.route-field")
    return [field] if field and "." not in field else []


def _merge_dead_letters(document: dict[str, Any]) -> None:
    if document["on_bad_record"] == "fail":
        document.pop("dead_letters", None)


def _connections(configuration: Configuration, own: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    registry = connect.registry_connection(configuration)
    return {
        "kafka": connect.kafka_connection(configuration),
        **own,
        **({"registry": registry} if registry else {}),
    }


def _spec_problems(document: dict[str, Any]) -> list[str]:
    """What the pipeline file's own rules still object to."""
    try:
        PipelineSpec.model_validate(document)
    except ValidationError as problem:
        return [f"{'.'.join(map(str, e['loc'])) or 'pipeline'}: {e['msg']}" for e in problem.errors()]
    return []

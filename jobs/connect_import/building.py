"""A connector's configuration to a pipeline file, with what became of each option. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.connect_import import bigquery, clickhouse, connect, iceberg, transforms
from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.options import Option, Options, find, none
from jobs.spec.envelope import OP_COLUMN
from jobs.spec.pipeline import PipelineSpec
from resources.config_files.models import examine
from resources.errors import ConfigurationError

CONNECTORS: Mapping[str, Options] = {
    iceberg.TABULAR: iceberg.OPTIONS,
    iceberg.APACHE: iceberg.OPTIONS,
    clickhouse.CLASS: clickhouse.OPTIONS,
    bigquery.CLASS: bigquery.OPTIONS,
}
PLACEHOLDER = {"fill_in": "string"}


@dataclass(frozen=True)
class OptionReport:
    """An option that was given, and what became of it."""

    name: str
    option: Option


@dataclass(frozen=True)
class Imported:
    """A pipeline file in the making.

    Attributes:
        document: its `attributes`.
        connections: entries for the connections file, secrets as references to the environment.
        reports: every option that was given.
        steps: what became of each transform.
        todo: what a person has to look at before the pipeline runs.
    """

    name: str
    document: dict[str, Any]
    connections: dict[str, dict[str, Any]]
    reports: list[OptionReport]
    steps: list[str]
    todo: list[str]


def build(
    configuration: Configuration,
    columns: Mapping[str, str] | None = None,
    key_columns: Mapping[str, str] | None = None,
    tables: list[str] | None = None,
    of_tables: bool = False,
) -> Imported:
    """The pipeline that does what the connector did.

    Args:
        columns: of the records' values; where they are not known the file gets a placeholder.
        key_columns: of the records' keys, for a BigQuery sink that upserts.
        tables: names of tables, for a sink that takes them from its records.
        of_tables: the columns are those of the tables, behind the connector's transforms.

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
    reports = [OptionReport(name, _status_of(name, CONNECTORS[kind])) for name in sorted(configuration.options)]
    module, topics = _module(kind), configuration.items("topics")
    known = transforms.before(configuration, columns or {}) if of_tables else dict(columns or {})
    followed = transforms.follow(configuration, known or PLACEHOLDER)
    chain = followed.chain
    parts, own_todo = (
        iceberg.tables(configuration, tables or [])
        if module is iceberg
        else clickhouse.tables(configuration, topics)
        if module is clickhouse
        else bigquery.tables(configuration, topics)
    )
    _without_deletes(parts, followed)
    changes = _changes(configuration, kind, key_columns or {}, chain)
    todo = [*chain.todo]
    if not columns:
        todo.append("source.value.columns: declare the columns of the records (--columns); `fill_in` is a placeholder")
        for column in _needed(configuration, module, chain):
            chain.read(column)
    key_format = dict(changes.pop("key_format", chain.record_key or {}))
    if chain.record_key and not configuration.text("key.converter").endswith(".StringConverter"):
        todo.append("source.key.columns: declare the parts of the key, and name them in source.transform")
    source, source_todo = connect.source(configuration, chain, key_format)
    if chain.envelope and source["value"]["format"] == "json":
        todo.append("source.value.envelope: say how the source writes times and decimals (timestamps, decimals)")
    document = {
        "description": f"Was the connector {configuration.name}.",
        "source": source,
        **_of_chain(module.document(configuration), configuration, chain),
        **changes,
        "tables": [_routed_by(part, configuration, chain) for part in parts],
        **connect.errors(configuration),
        "paused": True,
    }
    _merge_dead_letters(document)
    return Imported(
        name=pipeline_name(configuration.name),
        document=document,
        connections=_connections(configuration, module.connections(configuration)),
        reports=reports,
        steps=followed.steps,
        todo=[*todo, *own_todo, *source_todo, *_spec_problems(document)],
    )


def pipeline_name(name: str) -> str:
    """The connector's name with what a pipeline's name cannot have replaced."""
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    return plain if re.match(r"[a-z]", plain) else f"p_{plain}"


def _status_of(name: str, options: Options) -> Option:
    return find(name, options, connect.OPTIONS) or none("not an option that the connector is known to have")


def _module(kind: str) -> Any:
    return {clickhouse.CLASS: clickhouse, bigquery.CLASS: bigquery}.get(kind, iceberg)


def _changes(configuration: Configuration, kind: str, key: Mapping[str, str], chain: Chain) -> dict[str, Any]:
    """The `changes` part of a BigQuery sink that upserts: its keys are the records' keys."""
    if kind != bigquery.CLASS or bigquery.document(configuration).get("changes") is None:
        return {}
    if chain.key:
        return {"changes": {"key": {"columns": chain.key, "source": "value"}, "order_by": "arrival"}}
    columns = dict(key) or {"id": "string"}
    several = len(configuration.items("topics")) > 1
    return {
        "key_format": columns,
        "changes": {"key": {"columns": list(columns)}, **({"order_by": "arrival"} if several else {})},
    }


def _needed(configuration: Configuration, module: Any, chain: Chain) -> list[str]:
    """Columns that the connector names, so that records must have them."""
    if module is not iceberg:
        return []
    keys = iceberg.key_columns(configuration)
    fields = [configuration.text("iceberg.tables.cdc-field")] if keys and not chain.envelope else []
    fields.append(configuration.text("iceberg.tables.route-field"))
    return [*keys, *(field for field in fields if field and "." not in field)]


def _of_chain(document: dict[str, Any], configuration: Configuration, chain: Chain) -> dict[str, Any]:
    """The document with fields by the names that the chain gives them."""
    if "route_by" in document:
        document["route_by"] = transforms.route_field(configuration, chain)
    changes = document.get("changes", {})
    if chain.envelope and "op" in changes:
        # What the envelope says of a change is its op mapping.
        del changes["op"]
    elif "." in changes.get("op", {}).get("field", ""):
        changes["op"]["field"] = OP_COLUMN
    return document


def _routed_by(part: dict[str, Any], configuration: Configuration, chain: Chain) -> dict[str, Any]:
    route = part.get("route", {})
    if "field" not in route:
        return part
    return {**part, "route": {**route, "field": transforms.route_field(configuration, chain)}}


def _without_deletes(parts: list[dict[str, Any]], followed: transforms.Followed) -> None:
    for part in parts:
        if followed.drops_deletes and part["mode"] == "upsert_delete":
            part["mode"] = "upsert"


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
    return [mistake.sentence for mistake in examine(PipelineSpec, document).mistakes]

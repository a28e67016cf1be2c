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
from jobs.connect_import.placing import Placing
from jobs.connect_import.unwrapping import TARGET
from jobs.decode.envelope import OPERATION
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
        key_columns: of the records' keys, for a BigQuery sink that upserts; left to the records where not given.
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
    module: Any = {clickhouse.CLASS: clickhouse, bigquery.CLASS: bigquery}.get(kind, iceberg)
    placed = place(configuration, tables)
    known = transforms.before(configuration, columns or {}) if of_tables else dict(columns or {})
    followed = transforms.follow(configuration, known or PLACEHOLDER)
    chain = followed.chain
    parts, own_todo = module.tables(configuration, placed)
    _without_deletes(parts, followed)
    todo = [*chain.todo, *placed.todo]
    if placed.each:
        chain.drop(TARGET)
    changes, key = _changes(configuration, module, key_columns or {}, chain, placed)
    if not columns:
        for column in _needed(configuration, module, chain):
            chain.read(column)
        if not _takes_columns(parts, chain):
            todo.append("source.value.columns: declare the records' columns (--columns); `fill_in` is a placeholder")
    if chain.record_key and not configuration.text("key.converter").endswith(".StringConverter"):
        todo.append("source.key.columns: declare the parts of the key, and name them in source.transform")
    source, source_todo = connect.source(configuration, chain, chain.record_key if key is None else key)
    whole = configuration.text("kafkaKeyFieldName")
    if key is not None and whole and whole not in source["key"].get("columns", {}):
        source["key"]["column"] = whole
    _unknown_fields(source, parts)
    if placed.each:
        source["for_each"] = "topic"
    if chain.envelope and source["value"]["format"] == "json":
        todo.append("source.value.envelope: say how the source writes times and decimals (timestamps, decimals)")
    document = {
        "description": f"Was the connector {configuration.name}.",
        "source": source,
        **_of_chain(_document(configuration, module, placed), configuration, chain),
        **changes,
        **({"overrides": placed.overrides} if placed.overrides else {}),
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


def place(configuration: Configuration, tables: list[str] | None = None) -> Placing:
    """The tables that the connector's topics go to."""
    kind = configuration.text("connector.class")
    if kind == clickhouse.CLASS:
        return clickhouse.place(configuration)
    return bigquery.place(configuration) if kind == bigquery.CLASS else iceberg.place(configuration, tables or [])


def _document(configuration: Configuration, module: Any, placed: Placing) -> dict[str, Any]:
    found: dict[str, Any] = (
        iceberg.document(configuration, placed) if module is iceberg else module.document(configuration)
    )
    return found


def _takes_columns(parts: list[dict[str, Any]], chain: Chain) -> bool:
    """Leaves columns to the records where the sink did so, and nothing in the chain needs to know them."""
    if chain.statement() is not None or not all(p["create"] or p["evolve"]["add_columns"] for p in parts):
        return False
    for column in PLACEHOLDER:
        chain.columns.pop(column, None)
        chain.drop(column)
    for part in parts:
        part["evolve"]["add_columns"] = True
    if chain.envelope and chain.metadata == {OP_COLUMN: OPERATION}:
        chain.columns.pop(OP_COLUMN, None)
        chain.drop(OP_COLUMN)
    return True


def _unknown_fields(source: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    """What became of fields that no column of the table had."""
    value = source["value"]
    if not value.get("columns") or value["format"] in ("string", "bytes"):
        return
    adds = all(part["evolve"]["add_columns"] for part in parts) and "transform" not in source
    value["unknown_fields"] = "add" if adds else "ignore"


def _changes(
    configuration: Configuration, module: Any, key: Mapping[str, str], chain: Chain, placed: Placing
) -> tuple[dict[str, Any], dict[str, str] | None]:
    """The `changes` part of a sink whose keys are the records' keys, and the columns of these.

    They are left to the records where they are not given; None: the record's key is not read.
    """
    whole = configuration.text("kafkaKeyFieldName")
    if module is iceberg:
        # Tabular's goes by the tables' own identifier fields; with Debezium these are the record's key.
        return {}, {} if placed.each and iceberg.mode(configuration) != "append" and not iceberg.key_columns(
            configuration
        ) else None
    if module is not bigquery:
        return {}, None
    if bigquery.mode(configuration) == "append":
        return {}, {} if whole and connect.has_fields(configuration, "key") else None
    if chain.key:
        return {"changes": {"key": {"columns": chain.key, "source": "value"}, "order_by": "arrival"}}, None
    columns = dict(key)
    if not columns and not connect.has_fields(configuration, "key"):
        columns = {whole or "key": "string"}
    several = len(configuration.items("topics")) != 1 and not placed.each
    order = {"order_by": "arrival"} if several else {}
    if not columns:
        return {"changes": order} if order else {}, {}
    names = [whole] if whole and whole not in columns else list(columns)
    return {"changes": {"key": {"columns": names}, **order}}, columns


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

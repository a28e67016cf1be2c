"""Translates a connector's configuration to a pipeline file, with a report about each option. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from jobs.connect_import import configured, connect, key_steps, registries, transforms
from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.connector import Connector
from jobs.connect_import.each_topic import EachTopic
from jobs.connect_import.known import KnownTable
from jobs.connect_import.open_columns import PLACEHOLDER, open_columns
from jobs.connect_import.options import Option, OptionStatus, find, none
from jobs.connect_import.sink import sink_of
from jobs.connect_import.unwrapping import TARGET, log_deletes
from jobs.spec.metadata import COORDINATES, metadata_of
from jobs.spec.pipeline import NAME, PipelineSpec
from jobs.spec.pipeline_file import is_name
from resources.config_files.models import examine

_LEFT_OUT = (
    "source.value.unknown_fields: the sink made columns of new fields; here they are left out and counted, since a "
    "transform that makes other records (Flatten, HoistField, ExtractField) names all columns: declare new ones there"
)
_WITHOUT_DELETES = {"upsert_delete": "upsert", "delete": "append"}


@dataclass(frozen=True)
class Imported:
    """An imported pipeline.

    Attributes:
        document: the pipeline file's `attributes`.
        connections: entries for the connections file, with secrets as references to the environment.
        reports: the translation of every option of the connector.
        steps: the translation of each transform.
        todo: what a person has to check before the pipeline runs.
    """

    name: str
    document: dict[str, Any]
    connections: dict[str, dict[str, Any]]
    reports: dict[str, Option]
    steps: list[str]
    todo: list[str]


def build(
    configuration: Configuration,
    columns: Mapping[str, str] | None = None,
    key_columns: Mapping[str, str] | None = None,
    tables: list[str] | None = None,
    known: Mapping[str, KnownTable] | None = None,
    topics: Sequence[str] = (),
) -> Imported:
    """The pipeline that does what the connector did.

    Args:
        columns: of the records' values; if neither these nor the tables are known, the file gets a placeholder.
        key_columns: of the records' keys, if these are the tables' keys; left to the records if not given.
        tables: names of all tables, for a sink that takes them from records; for others the tables to import.
        known: the tables that the connector has filled, by name.
        topics: those that a connector with `topics.regex` reads.

    Raises:
        ConfigurationError: not one of the known connectors, or it cannot become one pipeline.
    """
    sink = sink_of(configuration)
    configuration = sink.configuration
    connector = Connector(sink, tables or [], {} if columns else known or {}, topics or configuration.items("topics"))
    placed, going_on = connector.placed, connector.going_on
    parts, tables_todo = sink.tables(placed, connector.is_known)
    operation, identifying = sink.operation_field(), sink.named_columns(placed)
    followed = (
        going_on.follow(identifying)
        if going_on.tables
        else transforms.follow(configuration, columns or PLACEHOLDER, operation, identifying)
    )
    chain, whole = followed.chain, sink.key_column()
    key_columns = key_steps.key_columns(chain, dict(key_columns or going_on.key_columns), whole)
    unknown = none("not an option that the connector is known to have")
    reports = {name: find(name, sink.options, connect.OPTIONS) or unknown for name in sorted(configuration.options)}
    todo = [*_references(configuration, reports), *chain.todo, *placed.todo, *going_on.todo(chain), *tables_todo]
    todo += _without_deletes(parts, followed, sink.tombstones_delete)
    changes, key = sink.changes(key_columns, chain, placed)
    further = {**sink.document(placed, going_on), **changes}
    named = further.get("changes", {}).get("key", {}).get("columns", [])
    todo += log_deletes(configured.transforms(configuration), parts, connector.filled, connector.known_columns, named)
    if not sink.keeps_coordinates:
        parts = [_with_coordinates(part, chain) for part in parts]
    as_configured = deepcopy(parts[0])
    if placed.each:
        chain.drop(TARGET)
    filled_todo = _fill_columns(connector, chain, parts, key_columns, declared=bool(columns))
    source, source_todo = _source(connector, chain, key, parts)
    each_is_known = connector.is_known and not going_on.tables
    todo += [*([] if each_is_known else chain.guesses), *filled_todo]
    each = EachTopic(connector.each_topic, as_configured, parts[0], source, keyed=key == {})
    document = _document(connector, chain, source, further, each.overrides(placed.overrides), parts)
    if followed.drops_tombstones and document.get("changes", {}).get("key", {}).get("source") == "value":
        document["changes"]["tombstones"] = "skip"  # such a key has nothing that they could delete
    todo += [*_envelope_todo(source, chain), *each.todo(said=todo), *source_todo]
    todo += [*_times_todo(connector, source["value"], each.columns), *_order_todo(document)]
    todo += [mistake.sentence for mistake in examine(PipelineSpec, document).mistakes]
    only = connector.named if configuration.text("iceberg.tables") else []
    return Imported(
        name=pipeline_name("_".join([configuration.name, *only])),
        document=document,
        connections={
            "kafka": connect.kafka_connection(configuration),
            **sink.connections(),
            **registries.connections(configuration),
        },
        reports=reports,
        steps=followed.steps,
        todo=todo,
    )


def pipeline_name(name: str) -> str:
    """The connector's name as a valid name of a pipeline."""
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    begins = (NAME.match(text) for text in (plain, f"p_{plain}"))
    return next(found[0] for found in begins if found and is_name(found[0]))


def _references(configuration: Configuration, reports: Mapping[str, Option]) -> list[str]:
    """What a person has to say, since only Connect's worker knows it: values like `${file:/path:name}`."""
    equivalent = {name: option for name, option in reports.items() if option.status is OptionStatus.EQUIVALENT}
    return [f"{name}: only Connect knows what it refers to; say it here ({option.text}), or in the connector's file, "
            "and import again" for name, option in equivalent.items()
            if re.search(r"\$\{\w+:", configuration.text(name)) and not connect.is_secret(name)]  # fmt: skip


def _fill_columns(
    connector: Connector, chain: Chain, parts: list[dict[str, Any]], key_columns: Mapping[str, str], declared: bool
) -> list[str]:
    """Completes the columns from the connector's options; returns what a person has to check.

    Args:
        declared: the columns of the records' values are given.
    """
    sink, placed = connector.sink, connector.placed
    todo = []
    if not declared and not connector.going_on.tables:
        left_open = open_columns(sink.named_columns(placed), parts, chain, placed)
        todo += [] if connector.is_known else left_open
    if chain.record_key and not sink.configuration.text("key.converter").endswith(".StringConverter"):
        todo.append("source.key.columns: declare the parts of the key, and name them in source.transform")
    return [*todo, *sink.fill_key(key_columns, chain)]


def _document(
    connector: Connector,
    chain: Chain,
    source: dict[str, Any],
    further: dict[str, Any],
    overrides: dict[str, Any],
    parts: list[dict[str, Any]],
) -> dict[str, Any]:
    configuration, going_on = connector.sink.configuration, connector.going_on
    return {
        "description": f"Was the connector {configuration.name}.",
        "source": source,
        **_of_chain(further, configuration, chain),
        **({"overrides": overrides} if overrides else {}),
        "tables": [_routed_by(going_on.entry(part, chain), configuration, chain) for part in parts],
        **connect.errors(configuration),
        "paused": True,
    }


def _source(
    connector: Connector, chain: Chain, key: dict[str, str] | None, parts: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """The `source` part; and what a person has to check."""
    adds = all(part["evolve"]["add_columns"] for part in parts)
    chain.open = adds and connect.takes_new_fields(chain)
    source, todo = connect.source(connector.sink.configuration, chain, chain.record_key if key is None else key)
    whole = connector.sink.key_column()
    if key is not None and whole and whole not in source["key"].get("columns", {}):
        source["key"]["column"] = whole
    if "key" in source:
        todo += key_steps.rename(chain, source["key"])
    if "key" in source or chain.key:
        todo += chain.key_todo
    if source["value"].get("columns") and source["value"]["format"] not in ("string", "bytes"):
        source["value"]["unknown_fields"] = "add" if chain.open else "ignore"
        if adds and not chain.open and not chain.closed:
            todo.append(_LEFT_OUT)
    if connector.placed.each:
        source["for_each"] = "topic"
    if source["value"]["format"] not in ("string", "bytes") and chain.envelope != "mongo":
        source["value"]["convert"] = "best_fit"  # as the sinks do, also where a schema says another type
    return source, todo


def _times_todo(connector: Connector, value: Mapping[str, Any], of_topics: Mapping[str, str]) -> list[str]:
    """What a person has to check about numbers that are times; `of_topics`: columns of single topics' records."""
    columns, times_in = {**value.get("columns", {}), **of_topics}, connector.sink.times_in
    times = [column for column, kind in columns.items() if kind.startswith("timestamp")]
    if not (times and times_in) or "envelope" in value:
        return []
    differ = f"for {', '.join(times)} are milliseconds, where the sink read {times_in}: where records have"
    if value["format"] == "json":
        return [f"source.value.time_unit: JSON numbers {differ} numbers, say their unit"]
    return [f"source.value.columns: numbers without a logical type {differ} such, declare these long, and make times "
            "of them in source.transform"]  # fmt: skip


def _order_todo(document: Mapping[str, Any]) -> list[str]:
    if document.get("changes", {}).get("order_by") != "arrival":
        return []
    return ["changes.order_by: arrival is the order in which records are read, as in the sink, and no replay reads "
            "Kafka again then: before the first run name a column that orders changes, if there is one"]  # fmt: skip


def _envelope_todo(source: dict[str, Any], chain: Chain) -> list[str]:
    if chain.envelope in (None, "mongo") or source["value"]["format"] != "json":
        return []
    return ["source.value.envelope: say how the source writes times and decimals (timestamps, decimals)"]


def _of_chain(document: dict[str, Any], configuration: Configuration, chain: Chain) -> dict[str, Any]:
    """The document with the fields' names after the chain of transforms."""
    if "route_by" in document:
        document["route_by"] = transforms.route_field(configuration, chain)
    changes = document.get("changes", {})
    if chain.envelope and "op" in changes:
        # The envelope has its own op mapping.
        del changes["op"]
    return document


def _routed_by(part: dict[str, Any], configuration: Configuration, chain: Chain) -> dict[str, Any]:
    route = part.get("route", {})
    if "field" not in route:
        return part
    return {**part, "route": {**route, "field": transforms.route_field(configuration, chain)}}


def _without_deletes(parts: list[dict[str, Any]], followed: transforms.Followed, tombstones_delete: bool) -> list[str]:
    """Makes tables ignore deletes that the transforms kept from the sink; returns what a person has to check."""
    dropped = followed.drops_deletes or (followed.drops_tombstones and tombstones_delete)
    for part in parts:
        part["mode"] = _WITHOUT_DELETES.get(part["mode"], part["mode"]) if dropped else part["mode"]
    if not any(part["mode"] in _WITHOUT_DELETES for part in parts):
        return []
    return [*followed.deletes_todo, *(followed.tombstones_todo if tombstones_delete else [])]


def _with_coordinates(part: dict[str, Any], chain: Chain) -> dict[str, Any]:
    """Has rows of a table without a unique key show their records, so that dead letters can be retried; not where a
    transform makes columns of these names."""
    ours = {metadata.column for metadata in metadata_of(COORDINATES)}
    if part["mode"] not in ("append", "delete") or ours & {*chain.columns, *chain.made}:
        return part
    names = part.get("metadata_columns", [])
    return {**part, "metadata_columns": [*(name for name in COORDINATES if name not in names), *names]}

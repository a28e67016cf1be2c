"""The Iceberg sinks: Tabular's (`io.tabular.iceberg.connect`) and Apache's, its successor.

Sources: their `IcebergSinkConfig` and documentation. The Apache sink only appends; its `id-columns` have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jobs.connect_import import connect
from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.placing import Placing
from jobs.connect_import.sink import Offsets, Sink
from jobs.connect_import.transforms import debezium_target
from jobs.connect_import.unwrapping import TARGET
from jobs.destinations.iceberg import connect_catalog
from jobs.destinations.iceberg.connect_catalog import connection_name
from jobs.destinations.iceberg.connect_options import OPTIONS
from jobs.spec.envelope import OP_COLUMN
from jobs.spec.new_tables import NewTables
from jobs.spec.pipeline import Intermediate
from resources.connections import Connections
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster

TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"
APACHE = "org.apache.iceberg.connect.IcebergSinkConnector"

# The records' field contains the table's whole name.
_NAMED = "{route_by}"
# A name with a namespace: others can have no table, so a sink that makes none passes over them.
_QUALIFIED = r"[^.{}]+(\.[^.{}]+)+"
_MISSING = (
    ". The sink passed over records that name a table that does not exist; here their merges fail until it is there: "
    "narrow `allow`, or import again with --table for each table"
)
_ANY_CASE = "iceberg.tables.schema-case-insensitive"
_CASE_TODO = (
    f"{_ANY_CASE}: ignore_case works with plain JSON; name fields whose case is not the table's in source.value.rename"
)


class IcebergSink(Sink):
    """The Iceberg sinks, Tabular's and Apache's."""

    classes = (TABULAR, APACHE)
    options = OPTIONS

    def place(self, configuration: Configuration, named: list[str]) -> Placing:
        """The tables of the connector.

        Tabular's transform for Debezium takes the table's name from each record's source, like Debezium's topic names.

        Args:
            named: the tables to import. For a connector that takes the names from records: all tables that it has.
                None: all that are configured.

        Raises:
            ConfigurationError: the connector does not have such a table.
        """
        names = configuration.items("iceberg.tables")
        if unknown := [name for name in named if names and name not in names]:
            raise ConfigurationError(
                f"the connector has no table {', '.join(unknown)}",
                where=configuration.name,
                remedy=f"name some of {', '.join(names)}",
            )
        names = named or names
        pattern = debezium_target(configuration)
        if names or not _dynamic(configuration):
            return Placing({name: {} for name in names})
        if pattern is None:
            return Placing({_NAMED: {}})
        template = pattern.replace("{db}", "{source.db}").replace("{table}", "{source.table}")
        todo = (
            f"tables[].table: {template}, by Debezium's names of topics (prefix.schema.table, or prefix.database.table)"
        )
        return Placing({template: {}}, each=True, todo=[todo])

    def tables(
        self, configuration: Configuration, placed: Placing, is_known: bool
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """The `tables` part; and notes for the user.

        Raises:
            ConfigurationError: no table is named.
        """
        del is_known
        names = list(placed.tables)
        if not names:
            raise ConfigurationError(
                "the connector names no table", where=configuration.name, remedy="name them with --table"
            )
        todo = connect_catalog.todo(configuration)
        if _NAMED in names:
            todo.append(
                f"new_tables: at most {NewTables().most} tables, where the sink had no limit: raise `most` if records "
                "name more" + ("" if _creates(configuration) else _MISSING)
            )
        todo += [_CASE_TODO] if configuration.flag(_ANY_CASE) and connect.has_schema(configuration) else []
        routed = bool(configuration.text("iceberg.tables.route-field"))
        if routed and not _dynamic(configuration):
            # The sink sends no record to tables without an expression.
            taken = [n for n in names if configuration.text(f"iceberg.table.{n}.route-regex")]
            todo += [f"{n} has no route-regex, so it never got a record: left out" for n in names if n not in taken]
            return [_table(configuration, n) for n in taken or names], todo
        return [_table(configuration, n) for n in names], todo

    def document(self, configuration: Configuration, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
        """Parts of the pipeline file besides source and tables."""
        minutes = max(1, (configuration.number("iceberg.control.commit.interval-ms") or 300_000) // 60_000)
        found: dict[str, Any] = {"cron": f"*/{minutes} * * * *" if minutes < 60 else "0 * * * *"}
        if failures := configuration.number("iceberg.control.commit.max-consecutive-failures"):
            found["retry"] = {"max_retries": failures}
        if configuration.flag(_ANY_CASE) and not connect.has_schema(configuration):
            found["ignore_case"] = True
        if configuration.flag("iceberg.tables.schema-force-optional"):
            found["force_optional"] = True
        if (lake := connection_name(configuration)) != Intermediate().connection:
            found["intermediate"] = {"connection": lake}
        return {**found, **_changes(configuration, placed, going_on)}

    def changes(
        self, configuration: Configuration, key: Mapping[str, str], chain: Chain, placed: Placing
    ) -> tuple[dict[str, Any], dict[str, str] | None]:
        """Tabular's sink uses the tables' identifier fields as keys; with Debezium these are the record's key."""
        del key, chain
        left = placed.each and mode(configuration) != "append"
        return {}, {} if left and not key_columns(configuration, list(placed.tables)) else None

    def kept(self, configuration: Configuration) -> list[str]:
        return [TARGET, OP_COLUMN, configuration.text("iceberg.tables.route-field").split(".")[0]]

    def operation_field(self, configuration: Configuration) -> str:
        return configuration.text("iceberg.tables.cdc-field") if mode(configuration) == "upsert_delete" else ""

    def named_columns(self, configuration: Configuration, placed: Placing) -> list[str]:
        return key_columns(configuration, list(placed.tables))

    def known(self, configuration: Configuration, connections: Connections) -> Callable[[str], KnownTable | None]:
        from jobs.destinations.iceberg import connect_tables

        catalog, merges = connect_catalog.opened(configuration, connections), mode(configuration) != "append"
        return partial(connect_tables.known, catalog, merges)

    def stopped_at(
        self, configuration: Configuration, cluster: KafkaCluster, connections: Connections, committed: Offsets
    ) -> Offsets:
        from jobs.destinations.iceberg.connect_offsets import check_all_in_tables

        topic, branch_of = control_topic(configuration), partial(branch, configuration)
        catalog = connect_catalog.opened(configuration, connections)
        check_all_in_tables(cluster, catalog, topic, self.group(configuration), branch_of)
        return committed

    def connections(self, configuration: Configuration) -> dict[str, dict[str, Any]]:
        return {connection_name(configuration): connect_catalog.connection(configuration)}

    def group(self, configuration: Configuration) -> str:
        """The consumer group that the sink itself uses, for source offsets, events and snapshots.

        Tabular's sink has one of its own and also commits Connect's; Apache's has only Connect's.
        """
        if configuration.text("connector.class") != TABULAR:
            return connect.group(configuration)
        return configuration.text("iceberg.control.group-id") or f"cg-control-{configuration.name}"


def _changes(configuration: Configuration, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
    """The parts of the pipeline file for routing by fields, and for changes."""
    found: dict[str, Any] = {}
    if _dynamic(configuration) and not placed.each:
        found["route_by"] = configuration.text("iceberg.tables.route-field")
    if _NAMED in placed.tables:
        found["new_tables"] = {"allow": "[^{}]+" if _creates(configuration) else _QUALIFIED}
    if "route_by" in found or any("route" in _table(configuration, name) for name in placed.tables):
        found["unrouted"] = "skip"
    keys = key_columns(configuration, list(placed.tables))
    if not keys and mode(configuration) != "append":
        keys = going_on.key  # the tables' identifier fields, as the sink uses them
    if keys:
        found["changes"] = {"key": {"columns": keys, "source": "value"}, "tombstones": "skip", "order_by": "arrival"}
        if mode(configuration) == "upsert_delete":
            found["changes"]["op"] = {"field": OP_COLUMN}
    return found


def key_columns(configuration: Configuration, tables: Sequence[str]) -> list[str]:
    """The columns that identify a row; none if the sink only appends, or uses the tables' identifier fields.

    Raises:
        ConfigurationError: the tables have keys of their own that differ.
    """
    if mode(configuration) == "append":
        return []
    usual = configuration.items("iceberg.tables.default-id-columns")
    own = {
        match[1]: configuration.items(name)
        for name in configuration.options
        if (match := re.fullmatch(r"iceberg\.table\.(.+)\.id-columns", name))
    }
    # If records name the tables, any table with a key of its own may be among them.
    keys = {t: own.get(t, usual) for t in ([*own, *tables] if _NAMED in tables else tables)}
    if len({tuple(key) for key in keys.values()}) > 1:
        listed = "; ".join(f"{table}: {', '.join(key) or 'its identifier fields'}" for table, key in keys.items())
        raise ConfigurationError(
            f"the tables have different id-columns ({listed}), and a pipeline has one key",
            where=configuration.name,
            remedy="import once for the tables of each key, naming them with --table",
        )
    return next(iter(keys.values()), [])


def control_topic(configuration: Configuration) -> str:
    return configuration.text("iceberg.control.topic", "control-iceberg")


def branch(configuration: Configuration, table: str) -> str:
    own = configuration.text(f"iceberg.table.{table}.commit-branch")
    return own or configuration.text("iceberg.tables.default-commit-branch", "main") or "main"


def mode(configuration: Configuration) -> str:
    if configuration.text("connector.class") != TABULAR:
        return "append"
    if configuration.text("iceberg.tables.cdc-field"):
        return "upsert_delete"
    return "upsert" if configuration.flag("iceberg.tables.upsert-mode-enabled") else "append"


def _dynamic(configuration: Configuration) -> bool:
    return configuration.flag("iceberg.tables.dynamic-enabled")


def _creates(configuration: Configuration) -> bool:
    return configuration.flag("iceberg.tables.auto-create-enabled")


def _table(configuration: Configuration, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "iceberg", "connection": connection_name(configuration), "table": name}
    found["mode"] = mode(configuration)
    if (published := branch(configuration, name)) != "main":
        found["branch"] = published
    regex = configuration.text(f"iceberg.table.{name}.route-regex")
    field = configuration.text("iceberg.tables.route-field")
    if regex and field and not _dynamic(configuration):
        found["route"] = {"field": field, "matches": regex}
    layout = configuration.text(f"iceberg.table.{name}.partition-by") or configuration.text(
        "iceberg.tables.default-partition-by"
    )
    if layout:
        found["partition_by"] = [_partition(part.strip()) for part in re.split(r",(?![^()]*\))", layout)]
    properties = {
        **configuration.below("iceberg.tables.auto-create-props."),
        **configuration.below("iceberg.tables.write-props."),
    }
    if properties:
        found["properties"] = properties
    found["create"] = _creates(configuration)
    evolve = configuration.flag("iceberg.tables.evolve-schema-enabled")
    found["evolve"] = {"add_columns": evolve, "widen_types": evolve, "relax_required": evolve}
    return found


def _partition(text: str) -> str:
    """Translates a partition: the sink's `bucket(column, 16)` is `bucket(16, column)`; times are in the singular."""
    match = re.fullmatch(r"(\w+)\((.+)\)", text)
    if not match:
        return text
    arguments = [a.strip() for a in match[2].split(",")]
    transform = match[1].lower()
    transform = transform.removesuffix("s") if transform in ("years", "months", "days", "hours") else transform
    if len(arguments) == 2 and arguments[1].isdigit():
        arguments.reverse()
    return f"{transform}({', '.join(arguments)})"

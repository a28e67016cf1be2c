"""The Iceberg sinks: Tabular's (`io.tabular.iceberg.connect`) and Apache's, its successor.

Sources: their `IcebergSinkConfig` and documentation. The Apache sink only appends; its `id-columns` have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jobs.connect_import import connect
from jobs.connect_import.chain import Chain
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.placing import Placing
from jobs.connect_import.sink import Sink
from jobs.connect_import.transforms import debezium_target
from jobs.connect_import.unwrapping import TARGET
from jobs.destinations.iceberg import connect_catalog
from jobs.destinations.iceberg.connect_catalog import connection_name
from jobs.destinations.iceberg.connect_options import OPTIONS
from jobs.offsets import Offsets
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

    def place(self, named: list[str]) -> Placing:
        """The tables of the connector.

        Tabular's transform for Debezium takes the table's name from each record's source, like Debezium's topic names.

        Args:
            named: the tables to import. For a connector that takes the names from records: all tables that it has.
                None: all that are configured.

        Raises:
            ConfigurationError: the connector does not have such a table.
        """
        names = self.configuration.items("iceberg.tables")
        if unknown := [name for name in named if names and name not in names]:
            raise ConfigurationError(
                f"the connector has no table {', '.join(unknown)}",
                where=self.configuration.name,
                remedy=f"name some of {', '.join(names)}",
            )
        names = named or names
        pattern = debezium_target(self.configuration)
        if names or not self._dynamic:
            return Placing({name: {} for name in names})
        if pattern is None:
            return Placing({_NAMED: {}})
        # The sink writes the whole name in lower case.
        template = pattern.lower().replace("{db}", "{source.db|lower}").replace("{table}", "{source.table|lower}")
        todo = (
            f"tables[].table: {template}, by Debezium's names of topics (prefix.schema.table, or prefix.database.table)"
        )
        return Placing({template: {}}, each=True, todo=[todo])

    def tables(self, placed: Placing, is_known: bool) -> tuple[list[dict[str, Any]], list[str]]:
        """The `tables` part; and notes for the user.

        Raises:
            ConfigurationError: no table is named.
        """
        del is_known
        names = list(placed.tables)
        if not names:
            raise ConfigurationError(
                "the connector names no table", where=self.configuration.name, remedy="name them with --table"
            )
        todo = [*connect_catalog.todo(self.configuration), *connect.schedule_todo(self._commit_ms)]
        if _NAMED in names:
            todo.append(
                f"new_tables: at most {NewTables().most} tables, where the sink had no limit: raise `most` if records "
                "name more" + ("" if self._creates else _MISSING)
            )
        todo += [_CASE_TODO] if self.configuration.flag(_ANY_CASE) and connect.has_schema(self.configuration) else []
        todo += self._keys_todo() if placed.each and self._mode != "append" else []
        if self._route_field and not self._dynamic:
            # The sink sends no record to tables without an expression.
            taken = [n for n in names if self.configuration.text(f"iceberg.table.{n}.route-regex")]
            todo += [f"{n} has no route-regex, so it never got a record: left out" for n in names if n not in taken]
            return [self._table(n) for n in taken or names], todo
        return [self._table(n) for n in names], todo

    def document(self, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
        """Parts of the pipeline file besides source and tables."""
        found: dict[str, Any] = {**connect.schedule(self._commit_ms)}
        if failures := self.configuration.number("iceberg.control.commit.max-consecutive-failures"):
            found["retry"] = {"max_retries": failures}
        if self.configuration.flag(_ANY_CASE) and not connect.has_schema(self.configuration):
            found["ignore_case"] = True
        if self.configuration.flag("iceberg.tables.schema-force-optional"):
            found["force_optional"] = True
        if (lake := connection_name(self.configuration)) != Intermediate().connection:
            found["intermediate"] = {"connection": lake}
        return {**found, **self._changes(placed, going_on)}

    def changes(
        self, key: Mapping[str, str], chain: Chain, placed: Placing
    ) -> tuple[dict[str, Any], dict[str, str] | None]:
        """Tabular's sink uses the tables' identifier fields as keys; with Debezium these are the record's key."""
        del key, chain
        left = placed.each and self._mode != "append"
        return {}, {} if left and not self.named_columns(placed) else None

    def kept(self) -> list[str]:
        return [TARGET, OP_COLUMN, self._route_field.split(".")[0]]

    def operation_field(self) -> str:
        return self.configuration.text("iceberg.tables.cdc-field") if self._mode == "upsert_delete" else ""

    def named_columns(self, placed: Placing) -> list[str]:
        """The columns that identify a row; none if the sink only appends, or uses the tables' identifier fields.

        Raises:
            ConfigurationError: the tables have keys of their own that differ.
        """
        if self._mode == "append":
            return []
        usual, own = self._usual_key, self._own_keys
        # If records name the tables, any table with a key of its own may be among them.
        tables = [*own, *placed.tables] if _NAMED in placed.tables else placed.tables
        keys = {table: own.get(table, usual) for table in tables}
        if len({tuple(key) for key in keys.values()}) > 1:
            listed = "; ".join(f"{table}: {', '.join(key) or 'its identifier fields'}" for table, key in keys.items())
            raise ConfigurationError(
                f"the tables have different id-columns ({listed}), and a pipeline has one key",
                where=self.configuration.name,
                remedy="import once for the tables of each key, naming them with --table",
            )
        return next(iter(keys.values()), [])

    def known(self, connections: Connections) -> Callable[[str], KnownTable | None]:
        from jobs.destinations.iceberg import connect_tables

        catalog, merges = connect_catalog.opened(self.configuration, connections), self._mode != "append"
        return partial(connect_tables.known, catalog, merges)

    def stopped_at(self, cluster: KafkaCluster, connections: Connections, committed: Offsets) -> Offsets:
        from jobs.destinations.iceberg.connect_offsets import check_all_in_tables

        topic = self.configuration.text("iceberg.control.topic", "control-iceberg")
        catalog = connect_catalog.opened(self.configuration, connections)
        check_all_in_tables(cluster, catalog, topic, self.group(), self._branch)
        return committed

    def connections(self) -> dict[str, dict[str, Any]]:
        return {connection_name(self.configuration): connect_catalog.connection(self.configuration)}

    def group(self) -> str:
        """The consumer group that the sink itself uses, for source offsets, events and snapshots.

        Tabular's sink has one of its own and also commits Connect's; Apache's has only Connect's.
        """
        if self.configuration.text("connector.class") != TABULAR:
            return connect.group(self.configuration)
        return self.configuration.text("iceberg.control.group-id") or f"cg-control-{self.configuration.name}"

    def _changes(self, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
        """The parts of the pipeline file for routing by fields, and for changes."""
        found: dict[str, Any] = {}
        if self._dynamic and not placed.each:
            found["route_by"] = self._route_field
        if _NAMED in placed.tables:
            found["new_tables"] = {"allow": "[^{}]+" if self._creates else _QUALIFIED}
        if "route_by" in found or any("route" in self._table(name) for name in placed.tables):
            found["unrouted"] = "skip"
        keys = self.named_columns(placed)
        if not keys and self._mode != "append":
            keys = going_on.key  # the tables' identifier fields, as the sink uses them
        if keys:
            key = {"columns": keys, "source": "value"}
            found["changes"] = {"key": key, "tombstones": "skip", "order_by": "arrival"}
            if self._mode == "upsert_delete":
                found["changes"]["op"] = {"field": OP_COLUMN}
        return found

    def _branch(self, table: str) -> str:
        own = self.configuration.text(f"iceberg.table.{table}.commit-branch")
        return own or self.configuration.text("iceberg.tables.default-commit-branch", "main") or "main"

    @property
    def _usual_key(self) -> list[str]:
        return self.configuration.items("iceberg.tables.default-id-columns")

    @property
    def _own_keys(self) -> dict[str, list[str]]:
        """Key columns by table, where the configuration names them for a single table."""
        found = ((re.fullmatch(r"iceberg\.table\.(.+)\.id-columns", n), n) for n in self.configuration.options)
        return {match[1]: self.configuration.items(name) for match, name in found if match}

    def _keys_todo(self) -> list[str]:
        """What a person has to do about keys of single tables, whose topics are not known."""
        here = ", ".join(self._usual_key) or "the record's key"
        found = {table: ", ".join(key) for table, key in self._own_keys.items() if key != self._usual_key}
        return [
            f"iceberg.table.{table}.id-columns: {key} identified a row in the sink, and {here} does so here: if "
            "that differs, declare the columns in `overrides` of its topic (source.value.columns), and name "
            f"them there: `changes: {{key: {{columns: [{key}], source: value}}, order_by: arrival}}`"
            for table, key in found.items()
        ]

    @property
    def _mode(self) -> str:
        if self.configuration.text("connector.class") != TABULAR:
            return "append"
        if self.configuration.text("iceberg.tables.cdc-field"):
            return "upsert_delete"
        return "upsert" if self.configuration.flag("iceberg.tables.upsert-mode-enabled") else "append"

    @property
    def _commit_ms(self) -> int:
        return self.configuration.number("iceberg.control.commit.interval-ms") or 300_000

    @property
    def _route_field(self) -> str:
        return self.configuration.text("iceberg.tables.route-field")

    @property
    def _dynamic(self) -> bool:
        return self.configuration.flag("iceberg.tables.dynamic-enabled")

    @property
    def _creates(self) -> bool:
        return self.configuration.flag("iceberg.tables.auto-create-enabled")

    def _table(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": "iceberg", "connection": connection_name(self.configuration), "table": name}
        found["mode"] = self._mode
        if (published := self._branch(name)) != "main":
            found["branch"] = published
        regex = self.configuration.text(f"iceberg.table.{name}.route-regex")
        if regex and self._route_field and not self._dynamic:
            found["route"] = {"field": self._route_field, "matches": regex}
        own = self.configuration.text(f"iceberg.table.{name}.partition-by")
        if layout := own or self.configuration.text("iceberg.tables.default-partition-by"):
            found["partition_by"] = [_partition(part.strip()) for part in re.split(r",(?![^()]*\))", layout)]
        properties = {
            **self.configuration.below("iceberg.tables.auto-create-props."),
            **self.configuration.below("iceberg.tables.write-props."),
        }
        if properties:
            found["properties"] = properties
        found["create"] = self._creates
        evolve = self.configuration.flag("iceberg.tables.evolve-schema-enabled")
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

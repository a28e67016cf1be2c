"""The ClickHouse sink (`com.clickhouse.kafka.connect.ClickHouseSinkConnector`), options of 1.5.

Source: its `ClickHouseSinkConfig` and documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.connect_import import connect
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.placing import Placing, placing
from jobs.connect_import.routers import routed, router_by_record
from jobs.connect_import.sink import Offsets, Sink
from jobs.destinations.clickhouse.connect_options import OPTIONS
from resources.connections import ClickHouseConnection, Connections
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster
from resources.topic_partition import TopicPartition

if TYPE_CHECKING:
    from resources.clickhouse import ClickHouseServer


class ClickHouseSink(Sink):
    """The ClickHouse sink."""

    classes = ("com.clickhouse.kafka.connect.ClickHouseSinkConnector",)
    options = OPTIONS
    defaults: ClassVar[Mapping[str, str]] = {"insertFormat": "JSON"}
    keeps_coordinates = True
    times_in = "seconds (of DateTime64 its own unit)"

    def place(self, configuration: Configuration, named: list[str]) -> Placing:
        """The tables that topics go to.

        Raises:
            ConfigurationError: their versions cannot be continued by a pipeline.
        """
        if configuration.flag("debeziumCDCEnabled"):
            raise ConfigurationError(
                "with debeziumCDCEnabled the sink's tables have versions by the source's position (`_version`), and a "
                "pipeline's have them by batches: rows of one would not replace those of the other",
                where=configuration.name,
                remedy="write a pipeline for new tables, from the topics' first records: `source.value.envelope: "
                '{kind: debezium}`, `source.key`, and mode upsert_delete (docs/formats-and-change-data.md, "A whole '
                'database")',
            )
        del named
        places = dict(part.split("=", 1) for part in configuration.items("topic2TableMap") if "=" in part)
        mark = _mark(configuration)
        template = "{topic[0]}.{topic[1]}" if mark == "." else f"{_database(configuration)}.{{topic}}"
        found = placing(configuration, template, lambda t: _table_of(configuration, t, places), () if mark else places)
        if mark and not configuration.items("topics"):
            todo = (
                f"tables[].table: databases are what topics of two parts have before {mark!r}, tables what they have "
                f"after it, others are in {_database(configuration)}: name topics that the template does not fit in "
                "`overrides` (`_` stands for -), or use groups of source.pattern"
            )
            return replace(found, todo=[*found.todo, todo])
        return found

    def tables(
        self, configuration: Configuration, placed: Placing, is_known: bool
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """The `tables` part: an entry for each table that topics go to."""
        evolve = configuration.flag("auto.evolve")
        todo = [
            "the sink's tables lack the columns _topic, _partition and _offset, by which append tables tell their rows "
            "apart: add them with ALTER TABLE (Nullable, empty for old rows), or let evolve.add_columns do it"
        ]
        todo = [] if is_known else todo
        form = configuration.text("insertFormat").upper()
        if form in ("CSV", "TSV") and not connect.has_fields(configuration, "value"):
            todo.append(f"insertFormat: no format reads {form}; take `value` apart in source.transform")
        return [
            {
                "kind": "clickhouse",
                "connection": "clickhouse",
                "table": table,
                "mode": "append",
                **route,
                "create": False,
                "evolve": {"add_columns": evolve, "widen_types": evolve, "relax_required": evolve},
            }
            for table, route in placed.tables.items()
        ], todo

    def document(self, configuration: Configuration, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
        del placed, going_on
        found: dict[str, Any] = {}
        if (retries := configuration.number("retryCount")) is not None:
            found["retry"] = {"max_retries": retries}
        if (records := configuration.number("bufferCount") or 0) > 0:
            found["batch"] = {"max_records": records}
        return found

    def connections(self, configuration: Configuration) -> dict[str, dict[str, Any]]:
        found: dict[str, Any] = {
            "kind": "clickhouse",
            "endpoints": [f"{configuration.text('hostname', 'localhost')}:{configuration.text('port', '8443')}"],
            "database": configuration.text("database", "default"),
            "username": configuration.text("username", "default"),
        }
        if configuration.text("password"):
            found["password"] = connect.environment("clickhouse.password")
        found["secure"] = configuration.flag("ssl")
        if cluster := configuration.text("clusterName") or configuration.text("keeperOnCluster"):
            found["cluster"] = cluster
        settings = dict(part.split("=", 1) for part in configuration.items("clickhouseSettings") if "=" in part)
        if settings:
            found["settings"] = settings
        if timeout := configuration.number("timeoutSeconds"):
            found["timeout_seconds"] = float(timeout)
        if timeout := configuration.number("clickhouseClientInsertTimeoutMs"):
            found["statement_timeout_seconds"] = max(1, timeout // 1000)
        return {"clickhouse": found}

    def known(self, configuration: Configuration, connections: Connections) -> Callable[[str], KnownTable | None]:
        from jobs.destinations.clickhouse import connect_tables

        del configuration
        return partial(connect_tables.known, _server(connections))

    def stopped_at(
        self, configuration: Configuration, cluster: KafkaCluster, connections: Connections, committed: Offsets
    ) -> Offsets:
        """The sink's next offsets: with `exactlyOnce` those of its state in KeeperMap."""
        from jobs.destinations.clickhouse.connect_offsets import after_keeper_state, keeper_rows, open_state

        del cluster
        if not configuration.flag("exactlyOnce"):
            return committed
        if router := router_by_record(configuration):
            raise open_state(f"it is kept by the names that {router} gives topics record by record", configuration.name)
        server, table = _server(connections), configuration.text("zkDatabase", "connect_state")
        rows = keeper_rows(server, table)
        return after_keeper_state(committed, rows, f"{server.where}, {table}", partial(state_key, configuration))


def state_key(configuration: Configuration, partition: TopicPartition) -> str:
    """The sink's name of a partition: after the routers, and with the database where names are split."""
    topic, mark = routed(configuration, partition.topic), _mark(configuration)
    return str(TopicPartition(mark.join(_split(configuration, topic)) if mark else topic, partition.partition))


def _table_of(configuration: Configuration, topic: str, places: dict[str, str]) -> str:
    database, name = _split(configuration, topic)
    return f"{database}.{places.get(name, name)}"


def _split(configuration: Configuration, topic: str) -> tuple[str, str]:
    """Database and table of a topic: the sink splits names of two parts only."""
    mark = _mark(configuration)
    parts = topic.split(mark) if mark else []
    return (parts[0], parts[1]) if len(parts) == 2 else (_database(configuration), topic)


def _database(configuration: Configuration) -> str:
    return configuration.name_part("database", "default")


def _mark(configuration: Configuration) -> str:
    """What divides topics' names into database and table; empty if nothing does."""
    return (configuration.text("dbTopicSplitChar") or ".") if configuration.flag("enableDbTopicSplit") else ""


def _server(connections: Connections) -> ClickHouseServer:
    from resources.clickhouse import ClickHouseServer

    connection = connections.get("clickhouse", ClickHouseConnection)
    return ClickHouseServer("clickhouse", connection, connection.endpoints[0])

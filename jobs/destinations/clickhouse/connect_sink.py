"""The ClickHouse sink (`com.clickhouse.kafka.connect.ClickHouseSinkConnector`), options of 1.5.

Source: its `ClickHouseSinkConfig` and documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.connect_import import connect
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.placing import Placing, placing
from jobs.connect_import.routers import routed, router_by_record
from jobs.connect_import.sink import Sink
from jobs.destinations.clickhouse.connect_options import OPTIONS
from jobs.offsets import Offsets
from resources.connections import ClickHouseConnection, Connections
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster
from resources.topic_partition import TopicPartition

if TYPE_CHECKING:
    from resources.clickhouse import ClickHouseServer

_AT_ONCE = (
    "cron: the sink inserted records as they came, and here a run starts every minute: to see them after seconds write "
    "`interval: 5s` in its place (docs/operations.md, Commits every few seconds)"
)


class ClickHouseSink(Sink):
    """The ClickHouse sink."""

    classes = ("com.clickhouse.kafka.connect.ClickHouseSinkConnector",)
    options = OPTIONS
    defaults: ClassVar[Mapping[str, str]] = {"insertFormat": "JSON"}
    keeps_coordinates = True
    times_in = "seconds (of DateTime64 its own unit)"

    def place(self, named: list[str]) -> Placing:
        """The tables that topics go to.

        Raises:
            ConfigurationError: their versions cannot be continued by a pipeline.
        """
        if self.configuration.flag("debeziumCDCEnabled"):
            raise ConfigurationError(
                "with debeziumCDCEnabled the sink's tables have versions by the source's position (`_version`), and a "
                "pipeline's have them by batches: rows of one would not replace those of the other",
                where=self.configuration.name,
                remedy="write a pipeline for new tables, from the topics' first records: `source.value.envelope: "
                '{kind: debezium}`, `source.key`, and mode upsert_delete (docs/formats-and-change-data.md, "A whole '
                'database")',
            )
        del named
        mark = self._mark
        template = "{topic[0]}.{topic[1]}" if mark == "." else f"{self._database}.{{topic}}"
        found = placing(self.configuration, template, self._table_of, () if mark else self._places)
        if mark and not self.configuration.items("topics"):
            todo = (
                f"tables[].table: databases are what topics of two parts have before {mark!r}, tables what they have "
                f"after it, others are in {self._database}: name topics that the template does not fit in "
                "`overrides` (`_` stands for -), or use groups of source.pattern"
            )
            return replace(found, todo=[*found.todo, todo])
        return found

    def tables(self, placed: Placing, is_known: bool) -> tuple[list[dict[str, Any]], list[str]]:
        """The `tables` part: an entry for each table that topics go to."""
        evolve = self.configuration.flag("auto.evolve")
        todo = [
            "the sink's tables lack the columns _topic, _partition and _offset, by which append tables tell their rows "
            "apart: add them with ALTER TABLE (Nullable, empty for old rows), or let evolve.add_columns do it"
        ]
        todo = [] if is_known else todo
        todo += connect.schedule_todo(self._flush_ms) if self._flush_ms else [_AT_ONCE]
        form = self.configuration.text("insertFormat").upper()
        if form in ("CSV", "TSV") and not connect.has_fields(self.configuration, "value"):
            todo.append(f"insertFormat: `value` is a line of {form}: take it apart in source.transform "
                        "(docs/transforms.md, CSV and TSV)")  # fmt: skip
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

    def document(self, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
        del placed, going_on
        found: dict[str, Any] = {}
        found |= connect.schedule(self._flush_ms or 60_000)
        if (retries := self.configuration.number("retryCount")) is not None:
            found["retry"] = {"max_retries": retries}
        if (records := self.configuration.number("bufferCount") or 0) > 0:
            found["batch"] = {"max_records": records}
        return found

    def connections(self) -> dict[str, dict[str, Any]]:
        host, port = self.configuration.text("hostname", "localhost"), self.configuration.text("port", "8443")
        found: dict[str, Any] = {
            "kind": "clickhouse",
            "endpoints": [f"{host}:{port}"],
            "database": self.configuration.text("database", "default"),
            "username": self.configuration.text("username", "default"),
        }
        if self.configuration.text("password"):
            found["password"] = connect.environment("clickhouse.password")
        found["secure"] = self.configuration.flag("ssl")
        if cluster := self.configuration.text("clusterName") or self.configuration.text("keeperOnCluster"):
            found["cluster"] = cluster
        if settings := self.configuration.pairs("clickhouseSettings", "="):
            found["settings"] = settings
        if timeout := self.configuration.number("timeoutSeconds"):
            found["timeout_seconds"] = float(timeout)
        if timeout := self.configuration.number("clickhouseClientInsertTimeoutMs"):
            found["statement_timeout_seconds"] = max(1, timeout // 1000)
        return {"clickhouse": found}

    def known(self, connections: Connections) -> Callable[[str], KnownTable | None]:
        from jobs.destinations.clickhouse import connect_tables

        return partial(connect_tables.known, _server(connections))

    def stopped_at(self, cluster: KafkaCluster, connections: Connections, committed: Offsets) -> Offsets:
        """The sink's next offsets: with `exactlyOnce` those of its state in KeeperMap."""
        from jobs.destinations.clickhouse.connect_offsets import after_keeper_state, keeper_rows, open_state

        del cluster
        if not self.configuration.flag("exactlyOnce"):
            return committed
        if router := router_by_record(self.configuration):
            why = f"it is kept by the names that {router} gives topics record by record"
            raise open_state(why, self.configuration.name)
        server, table = _server(connections), self.configuration.text("zkDatabase", "connect_state")
        rows = keeper_rows(server, table)
        return after_keeper_state(committed, rows, f"{server.where}, {table}", self.state_key)

    def state_key(self, partition: TopicPartition) -> str:
        """The sink's name of a partition: after the routers, and with the database where names are split."""
        topic, mark = routed(self.configuration, partition.topic), self._mark
        return str(TopicPartition(mark.join(self._split(topic)) if mark else topic, partition.partition))

    @property
    def _flush_ms(self) -> int:
        """After how long the sink inserts what it has; 0: at once."""
        return self.configuration.number("bufferFlushTime") or 0

    @property
    def _places(self) -> dict[str, str]:
        """Tables by topic, as the options name them."""
        return self.configuration.pairs("topic2TableMap", "=")

    def _table_of(self, topic: str) -> str:
        database, name = self._split(topic)
        return f"{database}.{self._places.get(name, name)}"

    def _split(self, topic: str) -> tuple[str, str]:
        """Database and table of a topic: the sink splits names of two parts only."""
        mark = self._mark
        parts = topic.split(mark) if mark else []
        return (parts[0], parts[1]) if len(parts) == 2 else (self._database, topic)

    @property
    def _database(self) -> str:
        return self.configuration.name_part("database", "default")

    @property
    def _mark(self) -> str:
        """What divides topics' names into database and table; empty if nothing does."""
        splits = self.configuration.flag("enableDbTopicSplit")
        return (self.configuration.text("dbTopicSplitChar") or ".") if splits else ""


def _server(connections: Connections) -> ClickHouseServer:
    from resources.clickhouse import ClickHouseServer

    connection = connections.get("clickhouse", ClickHouseConnection)
    return ClickHouseServer("clickhouse", connection, connection.endpoints[0])

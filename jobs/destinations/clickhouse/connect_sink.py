"""The ClickHouse sink (`com.clickhouse.kafka.connect.ClickHouseSinkConnector`), options of 1.5.

Source: its `ClickHouseSinkConfig` and documentation (`peer-features`, section 21).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs.connect_import import connect
from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.options import Options, equivalent, none, not_needed
from jobs.connect_import.placing import Placing, placing
from jobs.connect_import.sink import Offsets
from resources.connections import ClickHouseConnection, Connections
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster

if TYPE_CHECKING:
    from resources.clickhouse import ClickHouseServer

CLASSES = ("com.clickhouse.kafka.connect.ClickHouseSinkConnector",)

OPTIONS: Options = {
    "hostname": equivalent("the ClickHouse connection's endpoints"),
    "port": equivalent("the ClickHouse connection's endpoints"),
    "database": equivalent("tables[].table, and the connection's database"),
    "username": equivalent("the ClickHouse connection"),
    "password": equivalent("the ClickHouse connection, from the environment"),
    "ssl": equivalent("the ClickHouse connection's secure"),
    "ssl_socket_sni": none("the endpoint's own name is sent"),
    "jdbcConnectionProperties": equivalent("the ClickHouse connection's settings"),
    "timeoutSeconds": equivalent("the ClickHouse connection's timeout_seconds"),
    "clickhouseClientInsertTimeoutMs": equivalent("the ClickHouse connection's statement_timeout_seconds"),
    "retryCount": equivalent("retry.max_retries"),
    "tableRefreshInterval": not_needed("the table is read again by each run"),
    "exactlyOnce": not_needed("always"),
    "suppressTableExistenceException": none("a missing table is created, or is an error"),
    "clickhouseSettings": equivalent("the ClickHouse connection's settings"),
    "topic2TableMap": equivalent("tables[].route.topics, or overrides"),
    "customInsertFormat": none("records are decoded by `source.value.format`, and inserted typed"),
    "insertFormat": none("records are decoded by `source.value.format`, and inserted typed"),
    "proxyType": none("put the proxy's address into HTTPS_PROXY"),
    "proxyHost": none("put the proxy's address into HTTPS_PROXY"),
    "proxyPort": none("put the proxy's address into HTTPS_PROXY"),
    "zkPath": equivalent("the ClickHouse connection's keeper_path; ours begins empty, the sink's state is taken over"),
    "zkDatabase": equivalent(
        "the ClickHouse connection's state_table; ours begins empty, the sink's state is taken over"
    ),
    "keeperOnCluster": equivalent("the ClickHouse connection's cluster"),
    "clusterName": equivalent("the ClickHouse connection's cluster"),
    "enableDbTopicSplit": equivalent("tables[].table: the database is the topic's first part"),
    "dbTopicSplitChar": equivalent("tables[].table: the database is the topic's first part"),
    "bypassRowBinary": not_needed("inserts are in Arrow"),
    "bypassSchemaValidation": not_needed("what does not fit is found before it is written"),
    "bypassFieldCleanup": not_needed("only declared columns are written"),
    "dateTimeFormats": none("times are RFC 3339 text or milliseconds; declare others as string"),
    "clientVersion": not_needed("there is one client"),
    "client_version": not_needed("there is one client"),
    "tolerateStateMismatch": not_needed("a batch is immutable, so a retry is always the same one"),
    "debeziumCDCEnabled": none("an import is refused where it is on: a pipeline makes tables of its own"),
    "ignorePartitionsWhenBatching": not_needed("a batch spans partitions"),
    "bufferCount": equivalent("batch.max_records"),
    "bufferFlushTime": equivalent("cron"),
    "reportInsertedOffsets": not_needed("the consumer group always follows the tables"),
    "auto.evolve": equivalent("source.value.unknown_fields: add, and tables[].evolve"),
    "auto.evolve.ddl.refresh.retries": not_needed("a run looks at the table before it writes"),
    "auto.evolve.struct.to.json": equivalent("tables[].column_types: {<column>: JSON}"),
}


def place(configuration: Configuration, named: list[str]) -> Placing:
    """The tables that topics go to.

    Raises:
        ConfigurationError: they have versions that no pipeline can go on with.
    """
    if configuration.flag("debeziumCDCEnabled"):
        raise ConfigurationError(
            "with debeziumCDCEnabled the sink's tables have versions by the source's position (`_version`), and a "
            "pipeline's have them by batches: rows of one would not replace those of the other",
            where=configuration.name,
            remedy="write a pipeline for new tables, from the topics' first records: `source.value.envelope: {kind: "
            'debezium}`, `source.key`, and mode upsert_delete (docs/formats-and-change-data.md, "A whole database")',
        )
    del named
    places = dict(part.split("=", 1) for part in configuration.items("topic2TableMap") if "=" in part)
    split = configuration.flag("enableDbTopicSplit")
    # All of a topic's name after the first dot is the table's.
    template = "{topic}" if split else f"{configuration.text('database', 'default')}.{{topic}}"
    found = placing(configuration, template, lambda t: _table_of(configuration, t, places), places)
    if found.each and split and (mark := configuration.text("dbTopicSplitChar") or ".") != ".":
        todo = f"tables[].table: databases are what topics have before {mark!r}: name them by groups of source.pattern"
        return replace(found, todo=[*found.todo, todo])
    return found


def tables(configuration: Configuration, placed: Placing, is_known: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """The `tables` part: one for each table that topics go to."""
    evolve = configuration.flag("auto.evolve")
    todo = [
        "the sink's tables lack the columns _topic, _partition and _offset, by which append tables tell their rows "
        "apart: add them with ALTER TABLE (Nullable, empty for old rows), or let evolve.add_columns do it"
    ]
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
    ], [] if is_known else todo


def _table_of(configuration: Configuration, topic: str, places: dict[str, str]) -> str:
    database = configuration.text("database", "default")
    name = places.get(topic, topic)
    if configuration.flag("enableDbTopicSplit") and topic not in places:
        mark = configuration.text("dbTopicSplitChar") or "."
        if mark in topic:
            database, name = topic.split(mark, 1)
    return f"{database}.{name}"


def document(configuration: Configuration, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
    del placed, going_on
    found: dict[str, Any] = {}
    if retries := configuration.text("retryCount"):
        found["retry"] = {"max_retries": int(retries)}
    if (records := int(configuration.text("bufferCount", "0"))) > 0:
        found["batch"] = {"max_records": records}
    return found


def connections(configuration: Configuration) -> dict[str, dict[str, Any]]:
    found: dict[str, Any] = {
        "kind": "clickhouse",
        "endpoints": [f"{configuration.text('hostname', 'localhost')}:{configuration.text('port', '8443')}"],
        "database": configuration.text("database", "default"),
        "username": configuration.text("username", "default"),
    }
    if configuration.text("password"):
        found["password"] = connect.environment("clickhouse.password")
    found["secure"] = configuration.flag("ssl", True)
    if cluster := configuration.text("clusterName") or configuration.text("keeperOnCluster"):
        found["cluster"] = cluster
    settings = dict(part.split("=", 1) for part in configuration.items("clickhouseSettings") if "=" in part)
    if settings:
        found["settings"] = settings
    if timeout := configuration.text("timeoutSeconds"):
        found["timeout_seconds"] = float(timeout)
    if timeout := configuration.text("clickhouseClientInsertTimeoutMs"):
        found["statement_timeout_seconds"] = max(1, int(timeout) // 1000)
    return {"clickhouse": found}


def changes(
    configuration: Configuration, key: Mapping[str, str], chain: Chain, placed: Placing
) -> tuple[dict[str, Any], dict[str, str] | None]:
    del configuration, key, chain, placed
    return {}, None


def kept(configuration: Configuration) -> list[str]:
    del configuration
    return []


def named_columns(configuration: Configuration, chain: Chain, placed: Placing) -> list[str]:
    del configuration, chain, placed
    return []


def fill_key(configuration: Configuration, key: Mapping[str, str], chain: Chain) -> list[str]:
    del configuration, key, chain
    return []


def known(connections: Connections) -> Callable[[str], KnownTable | None]:
    from jobs.destinations.clickhouse import connect_tables

    return partial(connect_tables.known, _server(connections))


def group(configuration: Configuration) -> str:
    return connect.group(configuration)


def stopped_at(
    configuration: Configuration, cluster: KafkaCluster, connections: Connections, committed: Offsets
) -> Offsets:
    """With `exactlyOnce` its state in KeeperMap is what counts."""
    from jobs.destinations.clickhouse.connect_offsets import after_keeper_state, keeper_rows

    del cluster
    if not configuration.flag("exactlyOnce"):
        return committed
    server, table = _server(connections), configuration.text("zkDatabase", "connect_state")
    return after_keeper_state(committed, keeper_rows(server, table), f"{server.where}, {table}")


def _server(connections: Connections) -> ClickHouseServer:
    from resources.clickhouse import ClickHouseServer

    connection = connections.get("clickhouse", ClickHouseConnection)
    return ClickHouseServer("clickhouse", connection, connection.endpoints[0])

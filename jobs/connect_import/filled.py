"""The tables that a connector has filled, looked for in their systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.connect_import import bigquery, clickhouse
from jobs.connect_import.building import place
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.known import KnownTable
from resources.bigquery import BigQuery
from resources.clickhouse import ClickHouseServer
from resources.connections import (
    BigQueryConnection,
    ClickHouseConnection,
    Connections,
    IcebergConnection,
    KafkaConnection,
)
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster

Look = Callable[[str], KnownTable | None]


@dataclass(frozen=True)
class Filled:
    """
    Attributes:
        tables: by name.
        topics: of the connector, where each has a table of its own.
    """

    tables: Mapping[str, KnownTable] = field(default_factory=dict)
    topics: Sequence[str] = ()


NOTHING = Filled()


def find(configuration: Configuration, connections: Connections, named: list[str]) -> Filled:
    """The connector's tables; those that are not there are left out."""
    placed = place(configuration, named)
    topics: list[str] = []
    if placed.each:
        cluster = KafkaCluster("kafka", connections.get("kafka", KafkaConnection))
        topics = cluster.topics(configuration.items("topics"), configuration.text("topics.regex") or None)
    names = [placed.table_of(topic) for topic in topics] if placed.each else list(placed.tables)
    look = _look(configuration.text("connector.class"), connections)
    found = {name: look(name) for name in names if name and "{" not in name}
    return Filled({name: table for name, table in found.items() if table}, topics)


def _look(kind: str, connections: Connections) -> Look:
    if kind == clickhouse.CLASS:
        from jobs.connect_import import clickhouse_tables

        server = clickhouse_server(connections)
        return lambda table: clickhouse_tables.known(server, table)
    if kind == bigquery.CLASS:
        from jobs.connect_import import bigquery_tables

        service = BigQuery("bigquery", connections.get("bigquery", BigQueryConnection))
        return lambda table: bigquery_tables.known(service, table)
    from jobs.connect_import import iceberg_tables

    lake = catalog(connections)
    return lambda table: iceberg_tables.known(lake, table)


def catalog(connections: Connections) -> IcebergCatalog:
    return IcebergCatalog("lake", connections.get("lake", IcebergConnection))


def clickhouse_server(connections: Connections) -> ClickHouseServer:
    connection = connections.get("clickhouse", ClickHouseConnection)
    return ClickHouseServer("clickhouse", connection, connection.endpoints[0])

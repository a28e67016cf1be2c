"""The demo's tables, each read by its system's own client and nothing of ours, against the answer of the CSV files."""

from __future__ import annotations

from collections.abc import Iterator

import clickhouse_connect
import pyarrow as pa
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from pyiceberg.catalog import load_catalog

from jobs.spec.tables import Table
from resources.connections import BigQueryConnection, ClickHouseConnection, Connections, IcebergConnection
from resources.local.flights.columns import KEY, TABLE_COLUMNS

_FINAL = "SELECT * FROM air.flights FINAL"
_ALL = "SELECT * FROM air.flights"


def read_tables(tables: list[Table], connections: Connections) -> Iterator[tuple[str, pa.Table]]:
    """Kind and content of each table, as its system gives it."""
    for table in tables:
        if table.kind == "iceberg":
            yield table.kind, read_iceberg(table, connections)
        elif table.kind == "clickhouse":
            yield table.kind, _clickhouse(connections.get(table.connection, ClickHouseConnection))
        else:
            yield table.kind, _bigquery(connections.get(table.connection, BigQueryConnection))


def is_same(found: pa.Table, expected: pa.Table) -> bool:
    """Every value of every row, whatever order rows come in and however a system calls its types."""
    ordered = found.select(list(TABLE_COLUMNS)).cast(expected.schema).sort_by([(name, "ascending") for name in KEY])
    return bool(ordered.combine_chunks().equals(expected.combine_chunks()))


def read_iceberg(table: Table, connections: Connections) -> pa.Table:
    """All rows, as pyiceberg reads them."""
    connection = connections.get(table.connection, IcebergConnection)
    catalog = load_catalog(table.connection, type=connection.type, uri=connection.uri, warehouse=connection.warehouse)
    return catalog.load_table(table.table).scan().to_arrow()


def _clickhouse(connection: ClickHouseConnection) -> pa.Table:
    host, _, port = connection.endpoints[0].rpartition(":")
    password = connection.password.get_secret_value() if connection.password else ""
    client = clickhouse_connect.get_client(host=host, port=int(port), username=connection.username, password=password)
    try:
        return client.query_arrow(_FINAL, use_strings=True)
    finally:
        client.close()


def _bigquery(connection: BigQueryConnection) -> pa.Table:
    client = bigquery.Client(
        project=connection.project,
        credentials=AnonymousCredentials(),
        client_options=ClientOptions(api_endpoint=connection.endpoint),
    )
    try:
        return client.query_and_wait(_ALL).to_arrow(create_bqstorage_client=False)
    finally:
        client.close()

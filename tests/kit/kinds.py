"""Every kind of destination as the tests see it.

A package with a destination of its own names an object like these in the entry point group
`batchmerge.destination_tests`; the behaviour suite (`tests/destinations`) then runs on it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import yaml
from google.cloud.bigquery import Table

from jobs.destinations.base import Destination
from jobs.destinations.bigquery.state import STATE_TABLE
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.iceberg.history import ancestors
from resources.connections import Connections
from resources.local import stack as local_stack
from tests.kit import bigquery, clickhouse
from tests.kit.connections_file import connection_entries
from tests.kit.engine import catalog
from tests.kit.kind import USUAL, KindUnderTest
from tests.kit.model import Row


class Iceberg(KindUnderTest):
    name = "iceberg"
    layouts = ({"partition_by": ["bucket(3, id)"]}, {"write": "copy_on_write", "partition_by": ["bucket(3, id)"]})
    ways = ({}, {"write": "copy_on_write"})
    written = "merge.written"
    replayed = ("merge.begun", "merge.written", "merge.published")
    committed = "merge.published"

    def rows(self, connections: Connections, table: str, columns: Sequence[str] = USUAL) -> list[dict[str, object]]:
        found: list[dict[str, object]] = (
            catalog(connections).require(table).scan(selected_fields=tuple(columns)).to_arrow().to_pylist()
        )
        return found

    def remove(self, connections: Connections, table: str, below: int) -> None:
        catalog(connections).require(table).delete(f"id < {below}")

    def plant(self, connections: Connections, table: str, row: Row) -> None:
        found = catalog(connections).require(table)
        schema = found.schema().as_arrow()
        found.append(pa.Table.from_pylist([dict(zip(USUAL, row, strict=True))], schema))

    def drop(self, connections: Connections, table: str) -> None:
        assert catalog(connections).drop(table)

    def recreate(self, connections: Connections, table: str) -> None:
        schema = catalog(connections).require(table).schema()
        self.drop(connections, table)
        catalog(connections).create(table, schema, properties={"format-version": "2"})

    def roll_back(self, connections: Connections, table: str, commits: int = 1) -> None:
        found = catalog(connections).require(table)
        before = list(ancestors(found.metadata, "main"))[: commits + 1]
        found.manage_snapshots().set_current_snapshot(before[-1].snapshot_id).commit()

    def rename(self, connections: Connections, table: str, name: str) -> None:
        catalog(connections)._catalog.rename_table(table, name)


class ClickHouse(KindUnderTest):
    name = "clickhouse"
    service = "clickhouse"
    options: ClassVar[Mapping[str, object]] = {"chunk_rows": 50}
    bulk: ClassVar[Mapping[str, object]] = {"chunk_rows": 10_000}
    layouts = ({"chunk_rows": 7, "partition_by": "id % 3"},)
    layouts_by_ref = ({"partition_by": "cityHash64(ref) % 3"},)
    names = ("pg.public.raw-orders",)
    unrepresentable = ("date", "9999-12-31")
    fitting = "least(odd, date '2100-01-01')"
    accepting: ClassVar[Mapping[str, object]] = {"out_of_range": "clamp"}
    dead_letters_written = "clickhouse.inserted"
    distinguishing_columns = ()
    written = "clickhouse.inserted"
    replayed = ("clickhouse.leased", "clickhouse.replayed")
    committed = "clickhouse.reset"

    def rows(self, connections: Connections, table: str, columns: Sequence[str] = USUAL) -> list[dict[str, object]]:
        return clickhouse.select(connections, table, columns)

    def remove(self, connections: Connections, table: str, below: int) -> None:
        for server in clickhouse.servers(connections):
            server.execute(f"DELETE FROM {table} WHERE id < {below}", settings={"mutations_sync": 1})

    def plant(self, connections: Connections, table: str, row: Row) -> None:
        text = f"INSERT INTO {table} (id, name, amount) VALUES ({row[0]}, '{row[1]}', {row[2]})"
        clickhouse.servers(connections)[0].execute(text)

    def drop(self, connections: Connections, table: str) -> None:
        for server in clickhouse.servers(connections):
            server.execute(f"DROP TABLE {table} SYNC")

    def recreate(self, connections: Connections, table: str) -> None:
        for server in clickhouse.servers(connections):
            statement = server.rows(f"SHOW CREATE TABLE {table}")[0]["statement"]
            server.execute(f"DROP TABLE {table} SYNC")
            server.execute(statement)

    def lose_state(self, connections: Connections, destination: Destination) -> None:
        del connections
        assert isinstance(destination, ClickHouseDestination)
        for shard in destination.shards:
            state = ".".join(shard.store.table)
            shard.server.execute(f"ALTER TABLE {state} DELETE WHERE startsWith(name, '{shard.store.name}')")


class BigQuery(KindUnderTest):
    name = "bigquery"
    service = "bigquery"
    layouts = ({"cluster_by": ["id"]},)
    unrepresentable = ("array<string>", ["a", None])
    fitting = "filter(odd, x -> x is not null)"
    accepting: ClassVar[Mapping[str, object]] = {"null_elements": "drop"}
    dead_letters_written = "bigquery.letters"
    needs_state = ("append", "delete")
    written = "bigquery.submitted"
    replayed = ("bigquery.replay-loaded", "bigquery.submitted")
    revised = "bigquery.loaded"
    committed = "bigquery.moved"

    def rows(self, connections: Connections, table: str, columns: Sequence[str] = USUAL) -> list[dict[str, object]]:
        return bigquery.select(connections, f"SELECT {', '.join(columns)} FROM `{table}`")

    def remove(self, connections: Connections, table: str, below: int) -> None:
        bigquery.service(connections).change(f"DELETE FROM `{table}` WHERE id < {below}", {}, "test")

    def plant(self, connections: Connections, table: str, row: Row) -> None:
        text = f"INSERT INTO `{table}` (id, name, amount) VALUES ({row[0]}, '{row[1]}', {row[2]})"
        bigquery.service(connections).change(text, {}, "test")

    def drop(self, connections: Connections, table: str) -> None:
        bigquery.service(connections).delete_table(table)

    def recreate(self, connections: Connections, table: str) -> None:
        service = bigquery.service(connections)
        found = service.find_table(table)
        assert found
        service.delete_table(table)
        service.create_table(Table(service.table_id(table), found.schema))

    def lose_state(self, connections: Connections, destination: Destination) -> None:
        where = f"pipeline = '{destination.pipeline}' AND table_name = '{destination.table.table}'"
        bigquery.service(connections).change(f"DELETE FROM `tests.{STATE_TABLE}` WHERE {where}", {}, "test")

    def tidy(self, connections: Connections) -> None:
        bigquery.drop_tables(connections)


_OWN: tuple[KindUnderTest, ...] = (Iceberg(), ClickHouse(), BigQuery())
_OTHERS: tuple[KindUnderTest, ...] = tuple(e.load() for e in entry_points(group="batchmerge.destination_tests"))
KINDS: dict[str, KindUnderTest] = {kind.name: kind for kind in (*_OWN, *_OTHERS)}


def runnable(kind: KindUnderTest) -> bool:
    return unavailable(kind) is None


def unavailable(kind: KindUnderTest) -> str | None:
    """Why the service that it needs cannot run on this machine; None: it can, or it needs none."""
    services = [one for one in local_stack.SERVICES if one.name == kind.service]
    return services[0].unavailable() if services else None


def with_others(home: Path) -> Path:
    """A connections file with what `batchmerge up` has written in this data folder, and the kinds of other packages."""
    others = {kind.name: entry for kind in KINDS.values() if (entry := kind.connection(home))}
    file = home / "connections-of-tests.yaml"
    file.write_text(yaml.safe_dump({"connections": {**connection_entries(home), **others}}))
    return file

"""Landed batches into ClickHouse, beside a bare `insert_arrow` of the same rows: one process that sends rows from its
memory to a table of the same columns without deduplication. CPU is that of the server, Spark and the sender.
"""

from __future__ import annotations

import time
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import clickhouse_connect
import psutil
import pyarrow as pa

from jobs import protocol
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.state import Lease
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._spent import Spent, service, spent
from tests.benchmarks._workload import fill, pipeline, services

_BARE = "a bare insert of the same Arrow rows"


def measure(options: Namespace) -> Iterator[Measure]:
    with services("kafka", "spark", "clickhouse", home=options.home) as (home, connections):
        for mode in ("append", "upsert_delete"):
            yield from merges(home, connections, mode, options.rows, options.turns)
        yield from merges(home, connections, "append", options.few, options.turns)
        yield Measure(
            what="compare-and-set writes of ClickHouse's state, with read-back",
            unit="commits/s",
            turns=(state_writes(connections, options.writes),),
        )


def merges(home: Path, connections: Connections, mode: str, rows: int, turns: int) -> Iterator[Measure]:
    topic = f"ch-{mode}-{uuid.uuid4().hex[:6]}"
    fill(connections, topic, range(rows * (turns + 1)))
    tables = [{"kind": "clickhouse", "mode": mode}]
    p = pipeline(connections, topic, tables, batch={"max_records": rows}, control={"enabled": False})
    (destination,) = p.destinations()
    assert isinstance(destination, ClickHouseDestination)
    ours, bare = list[Spent](), list[Spent]()

    def timed(work: Callable[[], object]) -> Spent:
        with spent(psutil.Process(), service(home, "spark"), service(home, "clickhouse")) as found:
            work()
        return found

    for turn in range(turns + 1):
        list(protocol.land(p, 1))
        merged = timed(lambda: protocol.merge(p, destination))
        # The first turn makes tables, sessions and workers.
        if turn:
            ours.append(merged)
            bare.append(_bare_insert(connections, destination, turn, rows, timed))
    what = f"{rows:,} landed rows into ClickHouse, {mode}"
    yield Measure(
        what=what,
        unit="rows/s",
        turns=tuple(rows / one.seconds for one in ours),
        beside={_BARE: tuple(rows / one.seconds for one in bare)},
        headline=mode == "append" and rows >= 100_000,
    )
    cpu = tuple(one.cpu for one in ours)
    yield Measure(what=what, unit="CPU s", turns=cpu, beside={_BARE: tuple(one.cpu for one in bare)})


def _bare_insert(
    connections: Connections,
    destination: ClickHouseDestination,
    turn: int,
    rows: int,
    timed: Callable[[Callable[[], object]], Spent],
) -> Spent:
    known = connections.get("clickhouse", ClickHouseConnection)
    host, port = known.endpoints[0].split(":")
    password = known.password.get_secret_value() if known.password else ""
    client = clickhouse_connect.get_client(host=host, port=int(port), username=known.username, password=password)
    table, bare = destination.table.table, f"{destination.table.table}_bare_{turn}"
    data: pa.Table = client.query_arrow(f"SELECT * FROM {table} LIMIT {rows}", use_strings=True)
    client.command(f"CREATE TABLE {bare} AS {table}")
    client.command(f"ALTER TABLE {bare} MODIFY SETTING non_replicated_deduplication_window = 0")
    found = timed(lambda: client.insert_arrow(bare, data))
    assert client.query(f"SELECT count() FROM {bare}").result_rows[0][0] == rows
    client.command(f"DROP TABLE {bare} SYNC")
    return found


def state_writes(connections: Connections, count: int) -> float:
    """A second."""
    known = connections.get("clickhouse", ClickHouseConnection)
    store = KeeperStore(ClickHouseServer("clickhouse", known, known.endpoints[0]), f"bench/{uuid.uuid4().hex}/1")
    store.prepare()
    lease = store.swap(None, Lease())
    began = time.monotonic()
    for n in range(count):
        lease = store.swap(lease, replace(lease, batch=n))
    return count / (time.monotonic() - began)


SIZES: Sizes = {"rows": (1_000_000, 10_000), "few": (1000, 100), "turns": (3, 1), "writes": (200, 20)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

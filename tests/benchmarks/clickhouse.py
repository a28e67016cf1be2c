"""Landed batches to ClickHouse: rows a second beside a bare `insert_arrow` of the same rows, and state writes a second.

The bare insert is one process that sends the rows, read once before the clock starts, to a table of the same columns
without deduplication; both are measured in turns in the same run. Asked for by the issue: at least half of it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import clickhouse_connect
import pyarrow as pa

from jobs import protocol
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.lease import Lease
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections
from tests.benchmarks._workload import fill, pipeline, services


def merges(connections: Connections, mode: str, rows: int, chunk_rows: int, turns: int) -> None:
    topic = f"ch-{mode}-{rows}"
    fill(connections, topic, iter(range(rows * (turns + 1))))
    table = {"kind": "clickhouse", "mode": mode, "chunk_rows": chunk_rows}
    p = pipeline(connections, topic, [table], batch={"max_records": rows})
    (destination,) = p.destinations()
    assert isinstance(destination, ClickHouseDestination)
    ours, bare = [], []
    for turn in range(turns + 1):
        list(protocol.land(p, 1))
        began = time.monotonic()
        protocol.merge(p, destination)
        # The first turn makes tables, sessions and workers.
        if turn:
            ours.append(time.monotonic() - began)
            bare.append(_bare_insert(connections, destination, turn, rows))
    own, other = rows / statistics.median(ours), rows / statistics.median(bare)
    print(
        f"{mode:14s} {rows:>9,} rows  {statistics.median(ours):6.2f} s  {own:>10,.0f} rows/s   bare insert_arrow "
        f"{statistics.median(bare):6.2f} s  {other:>10,.0f} rows/s   ratio {own / other:.0%}   median of {turns}",
        flush=True,
    )


def _bare_insert(connections: Connections, destination: ClickHouseDestination, turn: int, rows: int) -> float:
    known = connections.get("clickhouse", ClickHouseConnection)
    host, port = known.endpoints[0].split(":")
    password = known.password.get_secret_value() if known.password else ""
    client = clickhouse_connect.get_client(host=host, port=int(port), username=known.username, password=password)
    table, bare = destination.table.table, f"{destination.table.table}_bare_{turn}"
    data: pa.Table = client.query_arrow(f"SELECT * FROM {table} LIMIT {rows}", use_strings=True)
    client.command(f"CREATE TABLE {bare} AS {table}")
    client.command(f"ALTER TABLE {bare} MODIFY SETTING non_replicated_deduplication_window = 0")
    began = time.monotonic()
    client.insert_arrow(bare, data)
    seconds = time.monotonic() - began
    assert client.query(f"SELECT count() FROM {bare}").result_rows[0][0] == rows
    client.command(f"DROP TABLE {bare} SYNC")
    return seconds


def state_writes(connections: Connections, count: int) -> None:
    known = connections.get("clickhouse", ClickHouseConnection)
    store = KeeperStore(ClickHouseServer("clickhouse", known, known.endpoints[0]), f"bench/{uuid.uuid4().hex}/1")
    store.prepare()
    lease = store.swap(None, Lease())
    began = time.monotonic()
    for n in range(count):
        lease = store.swap(lease, replace(lease, batch=n))
    print(f"state writes   {count / (time.monotonic() - began):,.0f}/s (compare-and-set with read-back)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--chunk-rows", type=int, default=250_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--home", type=Path, help="data folder of a running stack; left out: one of its own")
    options = parser.parse_args()
    with services("kafka", "spark", "clickhouse", home=options.home) as (_, connections):
        print(f"chunks of {options.chunk_rows:,} offsets")
        for mode in ("append", "upsert_delete"):
            merges(connections, mode, options.rows, options.chunk_rows, options.turns)
        merges(connections, "append", 1000, options.chunk_rows, 5)
        state_writes(connections, 200)
    return 0


if __name__ == "__main__":
    sys.exit(main())

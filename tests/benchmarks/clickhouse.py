"""Landed batches to ClickHouse: rows a second beside a bare `insert_arrow` of the same rows, state writes a second, and
catching up: many small landed batches in one merge, beside one landed batch of the same rows (at most twice its time).

The bare insert is one process that sends the rows, read once before the clock starts, to a table of the same columns
without deduplication; both are measured in turns in the same run. Asked for by the issue: at least half of it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import clickhouse_connect
import numpy as np
import pyarrow as pa
from pyiceberg.table import Transaction

from jobs import protocol
from jobs.batch import Batch, Counts, LandedBatch, landed_to_properties, new_commit_id
from jobs.changes.columns import landing_schema
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.lease import Lease
from jobs.offsets import OffsetRange, TopicPartition
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from jobs.watermark import Watermark
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections, load_connections
from resources.local import stack
from tests.benchmarks.iceberg import COLUMNS, PARTITIONS, fill


def pipeline(connections: Connections, topic: str, mode: str, rows: int, chunk_rows: int) -> Pipeline:
    name = f"bench_{uuid.uuid4().hex[:8]}"
    spec = PipelineSpec.model_validate(
        {
            "source": {
                "topics": [topic],
                "key": {"format": "json", "columns": {"id": "long"}},
                "value": {"format": "json", "columns": COLUMNS},
            },
            "changes": {"key": {"columns": ["id"]}},
            "batch": {"max_records": rows},
            "tables": [{"kind": "clickhouse", "table": f"bench.{name}", "mode": mode, "chunk_rows": chunk_rows}],
            "control": {"enabled": False},
        }
    )
    return Pipeline(name, spec, connections, run_id="bench")


def merges(connections: Connections, mode: str, rows: int, chunk_rows: int, turns: int) -> None:
    topic = f"ch-{mode}-{rows}"
    fill(connections, topic, iter(range(rows * (turns + 1))))
    p = pipeline(connections, topic, mode, rows, chunk_rows)
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


def catch_up(connections: Connections, batches: int, rows: int, chunk_rows: int) -> None:
    """So many landed batches of `rows` records, and one of them all; landed without Kafka, by pyiceberg."""
    seconds = {}
    for count, size in ((1, batches * rows), (batches, rows)):
        p = pipeline(connections, "none", "append", size, chunk_rows)
        (destination,) = p.destinations()
        assert isinstance(destination, ClickHouseDestination)
        land_directly(p, count, size)
        # Table, lease and workers are there, as for a table that was down for a while.
        destination.prepare()
        p.merge_context(destination).spark.range(8).mapInArrow(lambda parts: parts, "id long").count()
        began = time.monotonic()
        wanted = protocol.pending(p, destination)
        merged = destination.merge(p.merge_context(destination), wanted.committed, wanted.batches)
        seconds[count] = time.monotonic() - began
        assert merged.counts.inserted == batches * rows
    one, many = seconds.values()
    print(
        f"catch up       {batches:,} landed batches of {rows:,} rows in {many:6.2f} s   one of {batches * rows:,} in "
        f"{one:6.2f} s   ratio {many / one:.2f}",
        flush=True,
    )


def land_directly(p: Pipeline, count: int, rows: int) -> None:
    """Lands batches of four topic-partitions as snapshots of one file each."""
    p.intermediate.prepare()
    table = p.intermediate.catalog.require(p.intermediate.identifier)
    # As Spark does when it lands.
    with table.transaction() as merging:
        merging.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "100"})
    schema = landing_schema(p.spec)
    now, before, reached = datetime.now(UTC), None, dict.fromkeys(range(PARTITIONS), 0)
    work: Transaction | None = None
    for number in range(1, count + 1):
        ids = np.arange((number - 1) * rows, number * rows)
        partitions = np.sort(ids % PARTITIONS)
        ids = ids[np.argsort(ids % PARTITIONS, kind="stable")]
        ranges, offsets = {}, []
        for n in range(PARTITIONS):
            taken = OffsetRange(reached[n], reached[n] + int((partitions == n).sum()))
            ranges[TopicPartition("none", n)], reached[n] = taken, taken.end
            offsets.append(np.arange(taken.start, taken.end))
        batch = Batch(p.name, number, new_commit_id(), before, ranges, {"none": "id"}, 0, p.spec.meaning_hash)
        before = batch.commit_id
        texts = {name: pa.array(["a" * 20] * rows) for name in ("carrier", "origin", "note")}
        value = {"id": ids, **texts, "delay": ids % 90, "dist": ids * 0.5}
        kafka = {
            "topic": pa.array(["none"] * rows),
            "partition": pa.array(partitions, pa.int32()),
            "offset": np.concatenate(offsets),
            "timestamp": pa.array([now] * rows, pa.timestamp("us", "UTC")),
        }
        columns = {
            "key": pa.StructArray.from_arrays([pa.array(ids)], ["id"]),
            "value": pa.StructArray.from_arrays([pa.array(v) for v in value.values()], list(value)),
            "op": pa.array(["upsert"] * rows),
            "i": np.arange(rows),
            "batchNumber": np.full(rows, number),
            "kafka": pa.StructArray.from_arrays([pa.array(v) for v in kafka.values()], list(kafka)),
        }
        arrays = [
            pa.array(columns[f.name]).cast(f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema
        ]
        landed = LandedBatch(batch, Counts(read=rows, landed=rows), Watermark(), 0)
        # One commit of many snapshots: otherwise landing would take most of the time.
        work = work or table.transaction()
        work.append(pa.Table.from_arrays(arrays, schema=schema), snapshot_properties=landed_to_properties(landed))
        if number % 100 == 0 or number == count:
            work.commit_transaction()
            work = None


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
    parser.add_argument("--batches", type=int, default=1000, help="landed batches to catch up with")
    parser.add_argument("--home", type=Path, help="data folder of a running stack; left out: one of its own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        os.environ["BATCHMERGE_HOME"] = str(home)
        stack.up(home, ["kafka", "spark", "clickhouse"], print)
        try:
            connections = load_connections(home / "connections.yaml")
            print(f"chunks of {options.chunk_rows:,} offsets")
            for mode in ("append", "upsert_delete"):
                merges(connections, mode, options.rows, options.chunk_rows, options.turns)
            merges(connections, "append", 1000, options.chunk_rows, 5)
            catch_up(connections, options.batches, 1000, options.chunk_rows)
            state_writes(connections, 200)
        finally:
            if not options.home:
                stack.down(home, print)
    return 0


if __name__ == "__main__":
    sys.exit(main())

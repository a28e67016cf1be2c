"""Upserts of 10,000 changes, 10 % of them deletes, into Iceberg tables of growing size: a whole run with its checks.

Random keys into rows in random order, neighbouring keys into rows in key order; by position deletes and by MERGE, in
turn, so that what else the machine does meets both alike. Then what a scan costs, before and after maintenance.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
from confluent_kafka import Producer
from pyiceberg.table import Table

from jobs import protocol
from jobs.maintenance.run import maintain_table
from jobs.pipeline import Pipeline
from orchestration.components.merging import advance_or_replay
from resources.connections import Connections, KafkaConnection
from tests.benchmarks._spent import cpu_of, spark_server
from tests.benchmarks._workload import PARTITIONS, fill, pipeline, services

CHANGES = 10_000
FILE_ROWS = 1_250_000
KEYS = ["random", "neighbouring"]
WRITES = {"position deletes": "merge_on_read", "copy on write": "copy_on_write"}


@dataclass
class Subject:
    """A table that is measured."""

    label: str
    rows: int
    random: bool
    topic: str
    pipeline: Pipeline
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    seconds: list[float] = field(default_factory=list)
    stages: list[dict[str, float]] = field(default_factory=list)

    def keys(self) -> np.ndarray[Any, Any]:
        if self.random:
            return self.rng.choice(self.rows, CHANGES, replace=False)
        return np.arange(CHANGES) + self.rng.integers(0, self.rows - CHANGES)

    def run(self, server: psutil.Process, connections: Connections) -> None:
        produce(connections, self.topic, self.keys())
        destination = self.pipeline.destinations()[0]
        spent = cpu_of([server]) + time.process_time()
        began = time.monotonic()
        assert [batch.counts.landed for batch in protocol.land(self.pipeline, 1)] == [CHANGES]
        landed = time.monotonic()
        done = advance_or_replay(self.pipeline, destination, None)
        ended = time.monotonic()
        assert done.merged
        assert done.merged.counts.changes == CHANGES
        self.seconds.append(ended - began)
        spent = cpu_of([server]) + time.process_time() - spent
        parts = {"CPU": spent, "land": landed - began, "merge and checks": ended - landed, **done.merged.seconds}
        self.stages.append(parts)

    def report(self) -> None:
        parts = {name: statistics.median(s[name] for s in self.stages) for name in self.stages[0]}
        shown = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
        print(f"{self.label:64s} {statistics.median(self.seconds):6.2f} s ({shown})", flush=True)


def produce(connections: Connections, topic: str, keys: np.ndarray[Any, Any]) -> None:
    """One change for each key; every tenth is a delete."""
    producer = Producer({"bootstrap.servers": connections.get("kafka", KafkaConnection).bootstrap_servers})
    for place, key in enumerate(keys.tolist()):
        name = b'{"id":%d}' % key
        value = b'{"id":%d,"carrier":"B6","origin":"JFK","delay":%d,"dist":1.5,"note":"%x"}' % (
            key,
            place,
            place * 7919,
        )
        producer.produce(topic, key=name, value=None if place % 10 == 0 else value, partition=key % PARTITIONS)
    producer.flush()


def rows_of(ids: np.ndarray[Any, Any]) -> pa.Table:
    """Varied rows with these ids."""
    spread = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(8)
    texts = {name: pa.array([f"{name}{i}" for i in range(n)]) for name, n in (("carrier", 16), ("origin", 400))}
    few = {name: values.take(pa.array((spread % len(values)).astype(np.int64))) for name, values in texts.items()}
    note = pa.array(spread.astype(str))
    return pa.table(
        {"id": ids, **few, "note": note, "delay": (spread % 997).astype(np.int64), "dist": spread % 9999 / 2}
    )


def subject(connections: Connections, rows: int, random: bool, how: str) -> Subject:
    """A new table with so many rows, which no batch has brought."""
    topic = f"upsert-{uuid.uuid4().hex[:8]}"
    fill(connections, topic, ())
    tables = [{"kind": "iceberg", "mode": "upsert_delete"}]
    p = pipeline(connections, topic, tables, batch={"max_records": CHANGES})
    spec = p.spec.model_copy(update={"tables": [p.spec.tables[0].model_copy(update={"write": WRITES[how]})]})
    p = replace(p, spec=spec)
    p.destinations()[0].prepare()
    table = p.intermediate.catalog.require(spec.tables[0].table)
    ids = np.random.default_rng(0).permutation(rows) if random else np.arange(rows)
    load(table, ids)
    kind = "random" if random else "neighbouring"
    return Subject(f"{CHANGES:,} {kind} keys into {rows:,} rows, {how}", rows, random, topic, p)


def load(table: Table, ids: np.ndarray[Any, Any]) -> None:
    schema = table.schema().as_arrow()
    for part in np.array_split(ids, -(-len(ids) // FILE_ROWS)):
        table.append(rows_of(part).select(schema.names).cast(schema))


def scans(one: Subject, server: psutil.Process) -> dict[str, float]:
    """CPU seconds of counting, of adding up a column, and of reading everything, each the best of three."""
    destination = one.pipeline.destinations()[0]
    spark = one.pipeline.spark("scan", destination)
    name = f"{one.pipeline.intermediate.catalog.name}.{destination.table.table}"
    rows = destination.read(spark).known_count()
    assert spark.table(name).count() == rows
    by_spark = {"count": "count(*)", "sum": "sum(delay)", "full": "bit_xor(hash(*))"}
    found = {
        f"Spark {what}": _least(partial(cpu_of, [server]), spark.sql(f"SELECT {text} FROM {name}").collect)
        for what, text in by_spark.items()
    }
    place = one.pipeline.intermediate.catalog.require(destination.table.table).metadata_location
    text = f"SELECT bit_xor(hash(t)), count(*) FROM iceberg_scan('{place.removeprefix('file://')}') t"
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as db:
        for extension in ("avro", "iceberg"):
            db.execute(f"LOAD '{_extension(extension)}'")
        assert db.execute(text).fetchall()[0][1] == rows
        return {**found, "DuckDB full": _least(time.process_time, lambda: db.execute(text).fetchall())}


def _least(clock: Callable[[], float], work: Callable[[], object]) -> float:
    turns = []
    for _ in range(3):
        began = clock()
        work()
        turns.append(clock() - began)
    return min(turns)


def _extension(name: str) -> Path:
    (folder,) = import_module(f"duckdb_extension_{name}").__path__
    return next(Path(folder).rglob(f"{name}.duckdb_extension"))


def shown(found: Mapping[str, float], fresh: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f} ({seconds / fresh[name]:.2f} x)" for name, seconds in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table-rows", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--how", nargs="*", choices=list(WRITES), default=list(WRITES))
    parser.add_argument("--keys", nargs="*", choices=KEYS, default=KEYS)
    parser.add_argument("--maintain", action="store_true")
    wanted = parser.parse_args()
    with services("kafka", "spark") as (home, connections):
        for rows in wanted.table_rows:
            for keys in wanted.keys:
                measure(spark_server(home), connections, rows, keys, wanted)


def measure(server: psutil.Process, connections: Connections, rows: int, keys: str, wanted: argparse.Namespace) -> None:
    all_ways = [subject(connections, rows, keys == "random", how) for how in wanted.how]
    fresh = scans(all_ways[0], server)
    for turn in range(wanted.turns + 1):
        for one in all_ways:
            one.run(server, connections)
            if turn == 0:
                one.seconds.clear()  # the first warms up
                one.stages.clear()
    print(f"CPU seconds of scans, freshly written: {shown(fresh, fresh)}")
    for one in all_ways:
        one.report()
        print(f"  scans after {wanted.turns + 1} batches: {shown(scans(one, server), fresh)}", flush=True)
        if wanted.maintain:
            done = list(maintain_table(one.pipeline, one.pipeline.destinations()[0]))
            print(f"  {next(str(d) for d in done if d.task == 'compaction')}")
            print(f"  scans then: {shown(scans(one, server), fresh)}", flush=True)


if __name__ == "__main__":
    main()

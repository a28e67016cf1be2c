"""Upserts of 10,000 changes, 10 % of them deletes, into Iceberg tables of growing size: a whole run with its checks.

Random keys go into rows in random order, and neighbouring keys into rows in key order. Position deletes and MERGE
work in turns, so that other work of the machine slows both. Scans are measured before and after maintenance.
"""

from __future__ import annotations

import time
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
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
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._spent import cpu_of, spark_server
from tests.benchmarks._workload import PARTITIONS, fill, pipeline, services

CHANGES = 10_000
FILE_ROWS = 1_250_000
KEYS = ["random", "neighbouring"]
_SCANS = 5
WRITES = {"position deletes": "merge_on_read", "copy on write": "copy_on_write"}


@dataclass
class Subject:
    """A table that is measured.

    Attributes:
        fresh: its snapshot before the first batch.
    """

    label: str
    rows: int
    random: bool
    topic: str
    pipeline: Pipeline
    how: str
    fresh: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
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
        done = advance_or_replay(self.pipeline, destination, None)
        ended = time.monotonic()
        assert done.counts.changes == CHANGES
        spent = cpu_of([server]) + time.process_time() - spent
        self.stages.append({"seconds": ended - began, "CPU": spent})

    def all(self, stage: str) -> tuple[float, ...]:
        return tuple(stages[stage] for stages in self.stages)


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
    fresh = table.metadata.current_snapshot_id
    assert fresh is not None
    kind = "random" if random else "neighbouring"
    return Subject(f"{CHANGES:,} {kind} keys into {rows:,} rows", rows, random, topic, p, how, fresh)


def load(table: Table, ids: np.ndarray[Any, Any]) -> None:
    schema = table.schema().as_arrow()
    for part in np.array_split(ids, -(-len(ids) // FILE_ROWS)):
        table.append(rows_of(part).select(schema.names).cast(schema))


def scans(one: Subject, server: psutil.Process) -> dict[str, float]:
    """CPU seconds of counting, of adding up a column, and of reading everything, as a multiple of those that the rows
    took when freshly written; each the least of turns in which both are scanned."""
    destination, catalog = one.pipeline.destinations()[0], one.pipeline.intermediate.catalog
    spark = one.pipeline.spark("scan", destination)
    name = f"{catalog.name}.{destination.table.table}"
    rows = destination.read(lambda: spark).known_count()
    assert spark.table(name).count() == rows
    by_spark = {"count": "count(*)", "sum": "sum(delay)", "full": "bit_xor(hash(*))"}
    found = {
        f"scan by Spark, {what}": _times(
            partial(_own_cpu, server),
            spark.sql(f"SELECT {text} FROM {name}").collect,
            spark.sql(f"SELECT {text} FROM {name} VERSION AS OF {one.fresh}").collect,
        )
        for what, text in by_spark.items()
    }
    place = catalog.require(destination.table.table).metadata_location.removeprefix("file://")
    text = f"SELECT bit_xor(hash(t)), count(*) FROM iceberg_scan('{place}'"
    now, fresh = f"{text}) t", f"{text}, snapshot_from_id => {one.fresh}) t"
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as db:
        for extension in ("avro", "iceberg"):
            db.execute(f"LOAD '{_extension(extension)}'")
        assert [db.execute(each).fetchall()[0][1] for each in (now, fresh)] == [rows, one.rows]
        by_duckdb = _times(time.process_time, lambda: db.execute(now).fetchall(), lambda: db.execute(fresh).fetchall())
        return {**found, "scan by DuckDB, full": by_duckdb}


def _own_cpu(server: psutil.Process) -> float:
    """Without its Python workers, which do not scan and may end meanwhile."""
    times = server.cpu_times()
    return times.user + times.system


def _times(clock: Callable[[], float], now: Callable[[], object], fresh: Callable[[], object]) -> float:
    """How many times the seconds of `fresh` are those of `now`. Both warm up, then work in turns."""
    turns = []
    for _ in range(_SCANS + 1):
        spent = [clock()]
        for work in (now, fresh):
            work()
            spent.append(clock())
        turns.append(np.diff(spent))
    first, second = np.min(turns[1:], axis=0)
    return float(first / second)


def _extension(name: str) -> Path:
    (folder,) = import_module(f"duckdb_extension_{name}").__path__
    return next(Path(folder).rglob(f"{name}.duckdb_extension"))


def main(options: Namespace) -> Iterator[Measure]:
    with services("kafka", "spark", home=options.home) as (home, connections):
        for rows in options.table_rows:
            for keys in options.keys:
                yield from measure(spark_server(home), connections, rows, keys, options)


def measure(
    server: psutil.Process, connections: Connections, rows: int, keys: str, options: Namespace
) -> Iterator[Measure]:
    ways = list(WRITES) if rows <= options.copied_up_to else ["position deletes"]
    one, *others = [subject(connections, rows, keys == "random", how) for how in ways]
    for turn in range(options.turns + 1):
        for each in (one, *others):
            each.run(server, connections)
            if turn == 0:
                each.stages.clear()  # the first warms up
    headline = rows == max(options.table_rows)
    yield Measure(
        what=one.label, unit="s", turns=one.all("seconds"), headline=headline,
        beside={other.how: other.all("seconds") for other in others},
    )  # fmt: skip
    yield Measure(
        what=f"{one.label}, CPU", unit="CPU s", turns=one.all("CPU"),
        beside={other.how: other.all("CPU") for other in others},
    )  # fmt: skip
    yield from against(scans(one, server), f"{rows:,} rows after {options.turns + 1} batches of {keys} keys")
    assert any(done.task == "compaction" for done in maintain_table(one.pipeline, one.pipeline.destinations()[0]))
    yield from against(scans(one, server), f"{rows:,} rows after that, maintained")


def against(found: Mapping[str, float], what: str) -> Iterator[Measure]:
    for name, times in found.items():
        yield Measure(what=f"{name}, {what}, against freshly written", unit="times", turns=(times,))


SIZES: Sizes = {
    "table_rows": ([100_000, 1_000_000, 10_000_000, 50_000_000], [100_000]),
    "keys": (KEYS, ["random"]),
    "copied_up_to": (100_000, 0),
    "turns": (100, 1),
}

if __name__ == "__main__":
    report(__doc__, main, SIZES)

"""Catching up: many small landed batches in one merge, beside one landed batch of the same rows, on every kind.

A table that was down for a day has a thousand batches of a minute to get; asked for by the issue: at most twice the
time of one batch. Batches are landed without Kafka, by pyiceberg. Exit code 1 where it takes longer.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.table import Transaction

from jobs import protocol
from jobs.batch import Batch, Counts, LandedBatch, landed_to_properties, new_commit_id
from jobs.changes.columns import landing_schema
from jobs.offsets import OffsetRange, TopicPartition
from jobs.pipeline import Pipeline
from jobs.watermark import Watermark
from resources.connections import Connections, load_connections
from tests.benchmarks._workload import PARTITIONS, pipeline, services
from tests.kit.kind import KindUnderTest
from tests.kit.kinds import KINDS, runnable, with_others

MODES = ("append", "upsert_delete")
LIMIT = 2.0


def seconds(connections: Connections, kind: KindUnderTest, mode: str, count: int, rows: int) -> float:
    """Of one merge of so many landed batches of `rows` records."""
    p = pipeline(connections, "none", [{"kind": kind.name, "mode": mode}])
    (destination,) = p.destinations()
    land_directly(p, count, rows)
    # Table, state and workers are there, as for a table that was down for a while.
    destination.prepare()
    p.merge_context(destination).spark.range(8).mapInArrow(lambda parts: parts, "id long").count()
    began = time.monotonic()
    wanted = protocol.pending(p, destination)
    merged = destination.merge(p.merge_context(destination), wanted.committed, wanted.batches)
    taken = time.monotonic() - began
    assert merged
    assert merged.counts.inserted == count * rows
    assert len(kind.rows(connections, destination.table.table, ("id",))) == count * rows
    return taken


def ratio(connections: Connections, kind: KindUnderTest, mode: str, batches: int, rows: int, turns: int) -> float:
    """Measured in turns, so that a busy machine slows both down."""
    many, one = [], []
    for _ in range(turns):
        many.append(seconds(connections, kind, mode, batches, rows))
        one.append(seconds(connections, kind, mode, 1, batches * rows))
    found = statistics.median(many) / statistics.median(one)
    print(
        f"{kind.name:11s} {mode:14s} {batches:,} landed batches of {rows:,} rows in {statistics.median(many):6.2f} s   "
        f"one of {batches * rows:,} in {statistics.median(one):6.2f} s   ratio {found:.2f}   median of {turns}",
        flush=True,
    )
    return found


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="left out: all that can run here")
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1000, help="of a batch")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--home", type=Path, help="data folder of a running stack; left out: one of its own")
    options = parser.parse_args()
    kinds = [kind for name, kind in KINDS.items() if name in (options.kinds or KINDS) and runnable(kind)]
    wanted = [kind.service for kind in kinds if kind.service]
    with services("spark", *wanted, home=options.home) as (home, _):
        connections = load_connections(with_others(home))
        size = (options.batches, options.rows, options.turns)
        found = [ratio(connections, kind, mode, *size) for kind in kinds for mode in MODES]
    return 0 if max(found) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())

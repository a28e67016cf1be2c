"""Kafka to published Iceberg tables: records a second, seconds per stage, and peak memory of driver and server.

Two cores with a warm Spark reach, by the issue: 250,000 records/s landed and published (append), a 1,000-record batch
within 1.5 s, an upsert of 10,000 clustered keys into 10 million rows under twice its cost into 100 thousand. `--rows`
sets the size of the log, `--table-rows` the sizes of the tables that are upserted into.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from pathlib import Path

from jobs import protocol
from jobs.pipeline import Pipeline
from resources.connections import Connections
from resources.local import stack
from tests.benchmarks import _workload
from tests.benchmarks._workload import fill, services

LOADED_AT_ONCE = 1_000_000


def pipeline(
    connections: Connections, topic: str, modes: str | list[str], max_records: int, direct: bool = False
) -> Pipeline:
    """A new pipeline with one table a mode."""
    modes = [modes] if isinstance(modes, str) else modes
    tables = [{"kind": "iceberg", "mode": mode} for mode in modes]
    parts: dict[str, object] = {"batch": {"max_records": max_records}, "intermediate": {"direct": direct}}
    if modes == ["append"]:
        parts["changes"] = {}
    return _workload.pipeline(connections, topic, tables, **parts)


def advance(p: Pipeline) -> dict[str, float]:
    """Seconds of one batch: landing, merging, both."""
    began = time.monotonic()
    landed = sum(b.counts.landed for b in protocol.land(p, 1))
    between = time.monotonic()
    for destination in p.destinations():
        protocol.merge(p, destination)
    ended = time.monotonic()
    return {"records": landed, "land": between - began, "merge": ended - between, "total": ended - began}


def report(label: str, runs: list[dict[str, float]]) -> None:
    seconds = statistics.median(r["total"] for r in runs)
    records = runs[-1]["records"]
    land, merge = (statistics.median(r[k] for r in runs) for k in ("land", "merge"))
    print(
        f"{label:44s} {records:>9,.0f} records  {seconds:6.2f} s (land {land:.2f}, merge {merge:.2f})  "
        f"{records / seconds:>9,.0f}/s  median of {len(runs)}",
        flush=True,
    )


def append(connections: Connections, rows: int, direct: bool) -> None:
    topic = f"append-{rows}-{direct}"
    label = "append, direct" if direct else "append, through the intermediate table"
    turns = 3
    fill(connections, topic, iter(range(rows * (turns + 1))))
    p = pipeline(connections, topic, "append", rows, direct)
    advance(p)
    report(label, [advance(p) for _ in range(turns)])


def upserts(connections: Connections, sizes: list[int], changes: int) -> None:
    """A batch of changes with neighbouring keys into tables of these sizes, turn by turn, so that what else the machine
    does meets them alike."""
    turns, tables = 4, dict[int, Pipeline]()
    for size in sizes:
        fill(connections, f"upsert-{size}", iter(range(size)))
        tables[size] = pipeline(connections, f"upsert-{size}", "upsert_delete", min(size, LOADED_AT_ONCE))
        while advance(tables[size])["records"]:
            pass
    runs: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    for turn in range(turns + 1):
        for size, table in tables.items():
            first = size // 2 + turn * changes
            fill(connections, f"upsert-{size}", iter(range(first, first + changes)))
            runs[size].append(advance(table))
    for size, table in tables.items():
        report(f"upsert of {changes:,} into {size:,} rows, {_files(table)}", runs[size][1:])
    least, most = (statistics.median(r["total"] for r in runs[size][1:]) for size in (min(sizes), max(sizes)))
    print(f"into {max(sizes):,} rows it costs {most / least:.2f} times what it costs into {min(sizes):,}", flush=True)


def _files(p: Pipeline) -> str:
    """How many files the table has, and how many of its rows the newest merge has written."""
    found = p.intermediate.catalog.require(p.spec.tables[0].table).current_snapshot()
    assert found
    assert found.summary
    summary = found.summary.additional_properties
    return f"{summary['total-data-files']} files, {int(summary['added-records']):,} rows written"


def fan_out(connections: Connections, rows: int) -> None:
    """One log into three tables, beside one of them alone."""
    turns = 3
    fill(connections, "fan-out", iter(range(rows * (turns + 1))))
    modes = ["append", "upsert", "upsert_delete"]
    for label, chosen in (("one table", modes[:1]), ("three tables", modes)):
        p = pipeline(connections, "fan-out", chosen, rows)
        advance(p)
        report(f"{label} from one log", [advance(p) for _ in range(turns)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--table-rows", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--only-upsert", action="store_true")
    wanted = parser.parse_args()
    with services("kafka", "spark") as (home, connections):
        if not wanted.only_upsert:
            for direct in (False, True):
                append(connections, wanted.rows, direct)
                append(connections, 1_000, direct)
            fan_out(connections, wanted.rows)
        if wanted.table_rows:
            upserts(connections, wanted.table_rows, 10_000)
        print(f"peak memory of the driver: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
        print(f"peak memory of the Spark server: {_peak(home):,.0f} MiB")


def _peak(home: Path) -> float:
    """Largest resident size of the Spark server so far, in MiB."""
    pid = next(service.pid for service in stack.status(home) if service.name == "spark")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()

"""The same batch on a Spark cluster of 1, 2 and 4 workers of one core: landing, merges into Iceberg and ClickHouse,
and the files that are staged for BigQuery. Workers and run share only the object store (S3).

A throttle lets each worker run for a tenth of the time, so that two cores carry four workers, the driver, the run
and all services. "No task runs" is the serial time. It is not throttled, so it weighs less here than beside whole
workers: the gain of 100 cores is computed from the time that whole workers would take.

Amdahl's prediction assumes that tasks cannot be split, and as many tasks as there were: with one worker for "in
place of 1" (ClickHouse and BigQuery have two tasks then, so more workers gain more than predicted), with the most
workers for 100 cores. A larger cluster cuts a large batch into more tasks.
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs import protocol
from jobs.destinations.base import Destination
from jobs.destinations.bigquery.destination import BigQueryDestination
from jobs.destinations.bigquery.flush import Flush
from jobs.destinations.bigquery.staging_folder import StagingFolder
from jobs.pipeline import Pipeline
from resources.connections import Connections
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._workload import fill, new_name, pipeline, services
from tests.kit.spark_cluster import spark_cluster
from tests.kit.throttle import throttled

_MANY_CORES, _PARTITIONS = 100, 8
_MERGES = {"iceberg": "merge into Iceberg (upsert_delete)", "clickhouse": "merge into ClickHouse (append)"}
_LANDING, _STAGING = "landing", "files staged for BigQuery"
_TABLES = (
    {"kind": "iceberg", "mode": "upsert_delete"},
    {"kind": "clickhouse", "mode": "append"},
    {"kind": "bigquery", "mode": "append"},
)


@dataclass
class Work:
    """What one kind of work took on so many workers, a figure for each turn.

    Attributes:
        spans: when it began and ended, seconds since 1970.
        serial: seconds in which no task ran.
        tasks: seconds that tasks ran, all together, in the time of a whole core.
        longest: of these, those of the longest task: with more cores than tasks the others wait for it.
    """

    spans: list[tuple[float, float]] = field(default_factory=list)
    serial: list[float] = field(default_factory=list)
    tasks: list[float] = field(default_factory=list)
    longest: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        return [end - begin for begin, end in self.spans]

    def gain(self, share: float, few: int, many: int) -> tuple[float, ...]:
        """How many times faster many workers are than few, by Amdahl's law: what is serial stays as it is, and no task
        is cut in two.

        Args:
            share: of a core that each worker has.
        """

        def seconds(workers: int, serial: float, tasks: float, longest: float) -> float:
            return serial + max(tasks / workers, longest) / share

        turns = list(zip(self.serial, self.tasks, self.longest, strict=True))
        return tuple(seconds(few, *turn) / seconds(many, *turn) for turn in turns)


def measure(options: Namespace) -> Iterator[Measure]:
    topic, rows = new_name(), options.rows
    works: dict[int, dict[str, Work]] = {}
    with (
        services("kafka", "spark", "clickhouse", "bigquery", lake="s3") as (home, connections),
        tempfile.TemporaryDirectory() as folder,
    ):
        fill(connections, topic, range(rows), partitions=_PARTITIONS)
        for count in options.workers:
            works[count] = on_cluster(options, Path(folder) / str(count), count, home, connections, topic)
    few, *more = options.workers
    for name in (_LANDING, *_MERGES.values(), _STAGING):
        one, what = works[few][name], f"{rows:,} records, {name}"
        for count in more:
            yield Measure(
                what=f"{what}: {count} workers in place of {few}",
                unit="times",
                turns=tuple(a / b for a, b in zip(one.seconds, works[count][name].seconds, strict=True)),
                beside={"by Amdahl's law": tuple(one.gain(options.share / 100, few, count))},
            )
        most = works[more[-1]][name]
        yield Measure(what=f"{what}: tasks, whole cores", unit="CPU s", turns=tuple(most.tasks))
        yield Measure(what=f"{what}: no task runs", unit="s", turns=tuple(most.serial))
        gains = most.gain(share=1, few=1, many=_MANY_CORES)
        yield Measure(
            what=f"{what}: {_MANY_CORES} whole cores in place of 1, by Amdahl's law", unit="times", turns=gains
        )


def on_cluster(
    options: Namespace, folder: Path, workers: int, home: Path, known: Connections, topic: str
) -> dict[str, Work]:
    works: dict[str, Work] = {}
    with spark_cluster(folder, workers, hidden=home) as cluster:
        connections = cluster.connections(known)
        pids = [cluster.executor(n).pid for n in range(workers)]
        turn(connections, topic, options.rows, works={})  # a new Python worker takes seconds of a whole core
        with throttled(pids, options.share):
            for _ in range(options.turns):
                turn(connections, topic, options.rows, works)
        ran = cluster.tasks()
    for work in works.values():
        for begin, end in work.spans:
            inside = [(max(t.begin, begin), min(t.end, end)) for t in ran if t.begin < end and t.end > begin]
            work.serial.append(end - begin - covered(inside))
            seconds = [(b - a) * options.share / 100 for a, b in inside]
            work.tasks.append(sum(seconds))
            work.longest.append(max(seconds, default=0.0))
    return works


def turn(connections: Connections, topic: str, rows: int, works: dict[str, Work]) -> None:
    """Lands one batch of so many records, and takes it to each table."""
    p = pipeline(connections, topic, _TABLES, batch={"max_records": rows}, control={"enabled": False})
    p.spark("landing", p.intermediate.catalog)
    timed(works, _LANDING, lambda: list(protocol.land(p, 1)))
    for destination in p.destinations():
        destination.prepare()
        p.merge_context(destination)
        if isinstance(destination, BigQueryDestination):
            timed(works, _STAGING, staging(p, destination))
        else:
            timed(works, _MERGES[destination.table.kind], merging(p, destination))


def merging(p: Pipeline, destination: Destination) -> Callable[[], object]:
    return lambda: protocol.merge(p, destination)


def staging(p: Pipeline, destination: BigQueryDestination) -> Callable[[], object]:
    """What its workers do; what comes after is the emulator's work."""
    flush = Flush(tuple(p.intermediate.landed().batches))
    row = destination.state.read()
    assert row
    rows = destination.loader(p.merge_context(destination), row.staging_table)
    table = p.intermediate.catalog.require(p.intermediate.identifier)
    folder = StagingFolder(f"{table.location()}/staging", table.io)
    return lambda: rows.stage(flush, folder, writes_dead_letters=False)


def timed(works: dict[str, Work], name: str, work: Callable[[], object]) -> None:
    begin = time.time()
    work()
    works.setdefault(name, Work()).spans.append((begin, time.time()))


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds that lie in at least one of them; they are in the order of their beginnings."""
    seconds, reached = 0.0, 0.0
    for begin, end in spans:
        seconds += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return seconds


SIZES: Sizes = {"rows": (2_000_000, 20_000), "workers": ([1, 2, 4], [1, 2]), "share": (10, 50), "turns": (2, 1)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

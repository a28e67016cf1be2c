"""A table that was down: many small landed batches in one merge, beside one landed batch of the same rows. The batches
are landed before, without Kafka. The time is that of the merge alone.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator

from jobs import protocol
from jobs.connections_file import load_connections
from resources.connections import Connections
from tests.benchmarks._landed import land_directly
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._workload import pipeline, services
from tests.kit.kind import KindUnderTest
from tests.kit.kinds import KINDS, runnable, with_others

_MODES = ("append", "upsert_delete")


def measure(options: Namespace) -> Iterator[Measure]:
    kinds = [kind for name, kind in KINDS.items() if name in options.kinds and runnable(kind)]
    count, rows = options.batches, options.rows
    with services("kafka", "spark", *(kind.service for kind in kinds if kind.service), home=options.home) as (home, _):
        connections = load_connections(with_others(home))
        for kind in kinds:
            for mode in _MODES:
                many, one = list[float](), list[float]()
                # As a schedule finds Spark: the first merge of a kind loads much.
                for size in (count, 1):
                    seconds(connections, kind, mode, size, rows)
                for turn in range(options.turns):
                    for each in (many, one) if turn % 2 else (one, many):
                        size = count if each is many else 1
                        each.append(seconds(connections, kind, mode, size, count * rows // size))
                yield Measure(
                    what=f"{count:,} landed batches of {rows:,} records into {kind.name}, {mode}",
                    unit="s",
                    turns=tuple(many),
                    beside={"one batch of the same rows": tuple(one)},
                    headline=kind.name == "clickhouse",
                )


def seconds(connections: Connections, kind: KindUnderTest, mode: str, count: int, rows: int) -> float:
    """Of one merge of so many landed batches of `rows` records."""
    p = pipeline(connections, "none", [{"kind": kind.name, "mode": mode}], control={"enabled": False})
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


SIZES: Sizes = {
    "kinds": (["clickhouse", "iceberg", "bigquery", "duckdb"],) * 2,
    "batches": (1000, 20),
    "rows": (1000, 100),
    "turns": (3, 1),
}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

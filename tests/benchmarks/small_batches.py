"""A small batch of records into one Iceberg table: seconds of the engine alone, from the plan to the table's commit
with its control events, in a warm process and on warm services. Then the same behind many landed batches.
"""

from __future__ import annotations

import time
import uuid
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs import protocol
from jobs.pipeline import Pipeline
from resources.connections import Connections
from tests.benchmarks._landed import land_directly
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._workload import PARTITIONS, fill, pipeline, services

_TABLES = [{"kind": "iceberg", "mode": "append"}]


@dataclass
class Subject:
    """A pipeline whose batches are measured."""

    pipeline: Pipeline
    topic: str
    seconds: list[float]

    def batch(self, connections: Connections, rows: int) -> None:
        fill(connections, self.topic, range(rows))
        began = time.monotonic()
        advance(self.pipeline, rows)
        self.seconds.append(time.monotonic() - began)


def measure(options: Namespace) -> Iterator[Measure]:
    rows, behind = options.rows, options.behind
    with services("kafka", "spark", home=options.home) as (_, connections):
        subjects = {
            "default": new(connections),
            "behind": behind_many(connections, behind),
        }
        for _ in range(options.turns + 2):
            for subject in subjects.values():
                subject.batch(connections, rows)
    turns = {name: tuple(subject.seconds[2:]) for name, subject in subjects.items()}  # the first two warm up
    what = f"a batch of {rows:,} records, engine alone"
    yield Measure(what=f"{what}, default settings", unit="s", turns=turns["default"], headline=True)
    first = {"the first batches": turns["default"]}
    yield Measure(what=f"{what}, {behind:,} landed batches behind it", unit="s", turns=turns["behind"], beside=first)


def new(connections: Connections) -> Subject:
    topic = f"small-{uuid.uuid4().hex[:8]}"
    fill(connections, topic, ())
    return Subject(pipeline(connections, topic, _TABLES, changes={}), topic, [])


def behind_many(connections: Connections, count: int) -> Subject:
    """So many batches of one record a partition are landed, and in the table."""
    subject = new(connections)
    fill(connections, subject.topic, range(count * PARTITIONS))
    land_directly(subject.pipeline, count, PARTITIONS, subject.topic)
    assert protocol.merge(subject.pipeline, subject.pipeline.destinations()[0])
    return subject


def advance(p: Pipeline, rows: int) -> None:
    landed: Sequence[int] = [batch.counts.landed for batch in protocol.land(p, 1)]
    protocol.merge(p, p.destinations()[0])
    assert landed == [rows], landed


SIZES: Sizes = {"rows": (1_000, 100), "behind": (5_000, 20), "turns": (9, 1)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

"""A table that was down: however many small batches are landed, it takes each step of one merge once."""

from __future__ import annotations

from collections import Counter

import pytest

from jobs import protocol
from jobs.destinations.registry import kinds
from resources.connections import Connections
from tests.benchmarks._landed import land_directly
from tests.benchmarks._workload import PARTITIONS, pipeline
from tests.destinations.conftest import every_kind
from tests.kit.interrupting import at_failpoints
from tests.kit.kind import KindUnderTest

# What `make bench` measures of this in seconds: `tests/benchmarks/catch_up.py`.
COUNTS = [40, pytest.param(1000, marks=pytest.mark.slow)]
# Of kinds that declare no steps: those of the protocol.
STEPS = ("merge.begun", "merge.written", "merge.published")
SOMETIMES = {"clickhouse.taken_over", "bigquery.staged"}


@every_kind
@pytest.mark.parametrize("count", COUNTS)
def test_many_landed_batches_are_one_merge(kind: KindUnderTest, count: int, services: Connections) -> None:
    tables = [{"kind": kind.name, "mode": "upsert_delete", **kind.bulk}]
    p = pipeline(services, "none", tables, control={"enabled": False}, batch={"max_batches": 0})
    land_directly(p, count, PARTITIONS)
    (destination,) = p.destinations()
    steps = list[str]()
    with at_failpoints(steps.append):
        merged = protocol.merge(p, destination)
    assert merged
    assert (len(merged.batches), merged.merged.counts.inserted) == (count, count * PARTITIONS)
    expected = {"merge.planned", *(kinds()[kind.name].failpoints or STEPS)} - SOMETIMES
    assert Counter(steps) == Counter(expected)
    kind.drop(services, destination.table.table)

"""Memory (proportional set sizes) of Spark's server, its Python workers and the run, on services that have done
nothing else. A session belongs to the landing or to one table of a pipeline; Spark keeps it for hours.
"""

from __future__ import annotations

import uuid
from argparse import Namespace
from collections.abc import Iterator

from jobs import protocol
from tests.benchmarks._project import Project
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._spent import memory, spark_server
from tests.benchmarks._workload import fill, pipeline, services

_TABLES = [{"kind": "iceberg", "mode": "upsert_delete"}]


def measure(options: Namespace) -> Iterator[Measure]:
    rows, topic, few = options.rows, f"memory-{uuid.uuid4().hex[:8]}", f"few-{uuid.uuid4().hex[:8]}"
    with services("kafka", "spark") as (home, connections):
        server = spark_server(home)
        fill(connections, few, range(100))

        def use_sessions(count: int) -> float:
            """Two for each new pipeline, which lands and merges."""
            for _ in range(count // 2):
                p = pipeline(connections, few, _TABLES)
                assert list(protocol.land(p, 1))
                assert protocol.merge(p, p.destinations()[0])
            return memory([server])

        before, after = use_sessions(2), use_sessions(options.sessions - 2)
        fill(connections, topic, range(rows))
        project = Project.make(home, connections)
        for mode in ("append", "upsert_delete"):
            name = project.add(topic, [{"kind": "iceberg", "mode": mode}], batch={"max_records": 1_000_000})
            whole = project.run(name).whole
            what = f"most memory of a run of {rows:,} records in batches of 1,000,000, {mode}"
            yield Measure(what=what, unit="MB", turns=(whole.peak,), headline=mode == "append")
    yield Measure(
        what=f"Spark's server and workers after {options.sessions} sessions of small batches",
        unit="MB",
        turns=(after,),
        beside={"after 2": (before,)},
    )


SIZES: Sizes = {"rows": (2_000_000, 50_000), "sessions": (200, 6)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

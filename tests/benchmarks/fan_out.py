"""One log of records into three Iceberg tables (append, upsert, upsert_delete), beside one of these tables alone.
`batchmerge run` works on warm services. The time is from the start of the run's first step to the last table's
commit, with control events and checks.
"""

from __future__ import annotations

import uuid
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks._project import Project, Run
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._workload import fill, services

_MODES = ("append", "upsert", "upsert_delete")


def measure(options: Namespace) -> Iterator[Measure]:
    with services("kafka", "spark", home=options.home) as (home, connections):
        project = Project.make(home, connections)
        for rows in options.rows:
            topic, runs = f"fan-out-{uuid.uuid4().hex[:8]}", dict[int, list[Run]]({1: [], 3: []})
            fill(connections, topic, range(rows))
            for _ in range(options.turns + 1):
                for count, found in runs.items():
                    tables = [{"kind": "iceberg", "mode": mode} for mode in _MODES[:count]]
                    found.append(project.run(project.add(topic, tables)))
            three, one = runs[3][1:], runs[1][1:]  # the first turn warms up
            what = f"{rows:,} records into three tables"
            yield Measure(
                what=f"{what}, while it works",
                unit="records/s",
                turns=tuple(rows / run.working for run in three),
                beside={"one table": tuple(rows / run.working for run in one)},
                headline=rows == max(options.rows),
            )
            yield Measure(
                what=f"{what}, CPU",
                unit="CPU s per million",
                turns=tuple(run.whole.cpu / rows * 1e6 for run in three),
                beside={"one table": tuple(run.whole.cpu / rows * 1e6 for run in one)},
            )


SIZES: Sizes = {"rows": ([1_000_000, 5_000_000], [20_000]), "turns": (2, 1)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

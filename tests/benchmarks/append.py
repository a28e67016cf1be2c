"""One log of records into one Iceberg table of mode append, beside the Apache Iceberg sink on the same broker, log,
catalog and disk, in turns. `batchmerge run` works on warm services until everything is in the table.

"While it works" for Batchmerge is the time from the start of the run's first step to the table's commit, with all
batches, control events and checks. For the sink it is the time of its whole commit intervals, without its start,
its first and its last commit. "With the start" is the time from the command, or from the start of Connect's
process, until every row is visible. CPU and memory are those of Spark's server, its Python workers and the run, or
of Connect, without the broker.
"""

from __future__ import annotations

import uuid
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks._iceberg_sink import VERSION, SinkRun, run_sink
from tests.benchmarks._project import Project, Run
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._workload import fill, services

_TABLES = [{"kind": "iceberg", "mode": "append"}]


def measure(options: Namespace) -> Iterator[Measure]:
    rows, topic, warm = options.rows, f"append-{uuid.uuid4().hex[:8]}", f"warm-{uuid.uuid4().hex[:8]}"
    with services("kafka", "spark", home=options.home) as (home, connections):
        fill(connections, warm, range(rows // 20))
        fill(connections, topic, range(rows))
        project = Project.make(home, connections)

        def ours(log: str) -> Run:
            return project.run(project.add(log, _TABLES, changes={}))

        ours(warm)
        default = list[Run]()
        sinks: dict[str, list[SinkRun]] = {_sink(seconds): [] for seconds in options.commits}
        for _ in range(options.turns):
            default.append(ours(topic))
            for seconds in options.commits:
                sinks[_sink(seconds)].append(run_sink(home, connections, topic, rows, 1000 * seconds))
    what = f"append of {rows:,} records, default settings"
    yield Measure(
        what=f"{what}, while it works",
        unit="records/s",
        turns=tuple(rows / run.working for run in default),
        beside={name: tuple(rate for run in runs for rate in run.steady) for name, runs in sinks.items()},
        headline=True,
    )
    yield Measure(
        what=f"{what}, with the start",
        unit="records/s",
        turns=tuple(rows / run.whole.seconds for run in default),
        beside={name: tuple(rows / run.whole.seconds for run in runs) for name, runs in sinks.items()},
        headline=True,
    )
    yield Measure(
        what=f"{what}, CPU",
        unit="CPU s per million",
        turns=tuple(run.whole.cpu / rows * 1e6 for run in default),
        beside={name: tuple(run.whole.cpu / rows * 1e6 for run in runs) for name, runs in sinks.items()},
        headline=True,
    )
    yield Measure(
        what=f"{what}, most memory (PSS)",
        unit="MB",
        turns=tuple(run.whole.peak for run in default),
        beside={name: tuple(run.whole.peak for run in runs) for name, runs in sinks.items()},
        headline=True,
    )


def _sink(seconds: int) -> str:
    return f"Apache Iceberg sink {VERSION}, commits every {seconds} s"


SIZES: Sizes = {"rows": (5_000_000, 100_000), "turns": (4, 1), "commits": ([1, 5], [1])}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

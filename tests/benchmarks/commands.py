"""Commands on warm services, on a pipeline with one Iceberg table: wall time, and the CPU of the command and of
Spark's server meanwhile.
"""

from __future__ import annotations

import uuid
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks._project import Project
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._spent import Spent
from tests.benchmarks._workload import fill, services


def measure(options: Namespace) -> Iterator[Measure]:
    rows, topic = options.rows, f"commands-{uuid.uuid4().hex[:8]}"
    with services("kafka", "spark", home=options.home) as (home, connections):
        fill(connections, topic, range(rows))
        project = Project.make(home, connections)
        name = project.add(topic, [{"kind": "iceberg", "mode": "append"}], changes={})
        project.run(name)
        commands = {
            f"`batchmerge run` of {rows:,} records": ("run", name),
            "`batchmerge check`": ("check",),
            "`batchmerge plan`": ("plan", name),
            "`batchmerge status`": ("status",),
            "`batchmerge infer`": ("infer", topic),
        }
        found: dict[str, list[Spent]] = {what: [] for what in commands}
        for _ in range(options.turns):
            fill(connections, topic, range(rows))
            for what, arguments in commands.items():
                found[what].append(project.command(*arguments))
    for what, turns in found.items():
        yield Measure(what=what, unit="s", turns=tuple(one.seconds for one in turns), headline="run" in what)
        yield Measure(what=f"{what}, CPU", unit="CPU s", turns=tuple(one.cpu for one in turns))


SIZES: Sizes = {"rows": (1_000, 100), "turns": (5, 1)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

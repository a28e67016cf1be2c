"""The same records in every format: first the decoders alone, in records per second of CPU, then `batchmerge run` on
warm services. The run writes one log into one Iceberg append table, with a Schema Registry if the format takes one.
The time is from the start of the run's first step to the table's commit.
"""

from __future__ import annotations

import time
import uuid
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tests.benchmarks._formats import FORMATS, Encoded
from tests.benchmarks._project import Project, Run
from tests.benchmarks._records import rows
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._workload import fill, services
from tests.kit.registry import register, running_registry

_BATCH = 10_000


def measure(options: Namespace) -> Iterator[Measure]:
    for one in FORMATS:
        yield Measure(what=f"decoder alone: {one.name}", unit="records/s", turns=_decoded(one, options.turns))
    with services("kafka", "spark", home=options.home) as (home, connections), running_registry(Path(home)) as url:
        project = Project.make(home, connections, registry={"kind": "schema_registry", "url": url})
        topics: dict[str, Encoded] = {}
        for one in FORMATS:
            topic = f"formats-{uuid.uuid4().hex[:8]}"
            topics[topic] = replace(one, id=register(url, f"{topic}-value", one.schema, one.type)) if one.type else one
            fill(connections, topic, range(options.rows), write=topics[topic])
        runs = dict[str, list[Run]]()
        for _ in range(options.turns + 1):
            for topic, one in topics.items():
                source = {"topics": [topic], "value": one.value}
                tables = [{"kind": "iceberg", "mode": "append"}]
                name = project.add(topic, tables, source=source, changes={})
                runs.setdefault(topic, []).append(project.run(name))
    for topic, one in topics.items():
        found, what = runs[topic][1:], f"{options.rows:,} records, {one.name}"  # the first turn warms up
        rates = tuple(options.rows / run.working for run in found)
        yield Measure(what=f"{what}, while it works", unit="records/s", turns=rates, headline=one.change)
        million = tuple(run.whole.cpu / options.rows * 1e6 for run in found)
        yield Measure(what=f"{what}, CPU", unit="CPU s per million", turns=million)


def _decoded(one: Encoded, turns: int) -> tuple[float, ...]:
    """Records in a second of CPU."""
    raw, decoder = pa.array(one(rows(range(_BATCH))), pa.binary()), one.decoder()
    assert not decoder.decode(raw).errors
    found = []
    for _ in range(turns):
        began = time.process_time()
        for _ in range(10):
            decoder.decode(raw)
        found.append(10 * _BATCH / (time.process_time() - began))
    return tuple(found)


SIZES: Sizes = {"rows": (1_000_000, 20_000), "turns": (2, 1)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

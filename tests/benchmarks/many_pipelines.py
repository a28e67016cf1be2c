"""Many pipelines in one Dagster: how long their definitions take to load (files in an imported program, until a
repository can be shown), and one tick of all their sensors.
"""

from __future__ import annotations

import tempfile
import uuid
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from orchestration.definitions import with_shared
from orchestration.loading import load_folder
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._spent import seconds_of
from tests.benchmarks._workload import document, fill, new_name, services
from tests.kit import specs

_KINDS, _ENOUGH = ("iceberg", "clickhouse", "bigquery"), 100


def measure(options: Namespace) -> Iterator[Measure]:
    topic, turns = f"many-{uuid.uuid4().hex[:8]}", range(options.turns)
    with (
        services("kafka", "spark", "clickhouse", home=options.home) as (_, connections),
        tempfile.TemporaryDirectory() as text,
    ):
        folder = Path(text)
        fill(connections, topic, range(2 * _ENOUGH))
        write_pipelines(folder / "many", options.pipelines, topic)
        three = f"{options.pipelines} pipelines of three tables"
        loads = tuple(seconds_of(lambda: load(folder / "many").get_repository_def()) for _ in turns)
        yield Measure(what=f"load of {three}", unit="s", turns=loads)
        definitions = load(folder / "many")
        ticks = tuple(seconds_of(lambda: tick(definitions)) for _ in turns)
        yield Measure(what=f"one tick of all sensors of {three}", unit="s", turns=ticks)


def write_pipelines(folder: Path, count: int, topic: str) -> None:
    """Pipelines of this topic with a table of each kind, which start runs where enough records wait."""
    for _ in range(count):
        name = new_name()
        tables = [{"kind": kind, "mode": "upsert_delete"} for kind in _KINDS]
        specs.write(folder, name, document(name, topic, tables, trigger={"records": _ENOUGH}))


def load(folder: Path) -> dg.Definitions:
    return with_shared(load_folder(folder))


def tick(definitions: dg.Definitions) -> None:
    with dg.instance_for_test() as instance:
        for sensor in definitions.sensors or []:
            if sensor.name != "failure_alert":
                context = dg.build_sensor_context(instance, definitions=definitions)
                result = sensor.evaluate_tick(context)
                assert result.run_requests or not sensor.name.endswith("_lag"), result.skip_message


SIZES: Sizes = {"pipelines": (50, 3), "turns": (3, 1)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

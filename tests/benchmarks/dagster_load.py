"""Fifty pipelines with three tables each: how long Dagster takes to load them, one tick of all their sensors, and the
queries of its pages before and after a day of 1-minute schedules.

Bounds to hold (issue 8): load in under 10 s, all sensors in under 60 s, and the queries of the pages at most twice as
slow as before, or under half a second. Starts the local services that it needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import dagster as dg
import yaml

from resources.connections import KafkaConnection, data_folder, load_connections
from resources.local import stack
from resources.local.flights.produce import produce_flights
from tests.benchmarks.dagster_day import fill_day, time_pages

PIPELINES, KINDS = 50, ("iceberg", "clickhouse", "bigquery")
TABLES = len(KINDS)
_INSIDE = "inside"
ROOT = Path(__file__).parents[2]


def main() -> int:
    stack.up(data_folder(), ["kafka", "spark", "clickhouse"], print)
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    bootstrap = load_connections(data_folder() / "connections.yaml").get("kafka", KafkaConnection).bootstrap_servers
    produce_flights(bootstrap, topic)
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), topic)
        path = os.pathsep.join([folder, str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "BATCHMERGE_HOME": str(data_folder())}
        command = [sys.executable, "-m", "tests.benchmarks.dagster_load", _INSIDE]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def inside() -> int:
    """In the project with the fifty pipelines, in a fresh process."""
    loading, definitions = _load()
    assert len(definitions.get_repository_def().get_all_jobs()) >= PIPELINES
    ticking = _tick(definitions)
    print(f"load of {PIPELINES} pipelines with {TABLES} tables each: {loading:.1f} s (bound 10 s)")
    print(f"one tick of all {len(definitions.sensors or []) - 1} sensors of pipelines: {ticking:.1f} s (bound 60 s)")
    calm = _show_day(definitions)
    return 0 if loading < 10 and ticking < 60 and calm else 1


def _write(folder: Path, topic: str) -> None:
    """A project whose pipeline files are copies of the demo's, with other names and tables."""
    shutil.copytree(ROOT / "orchestration", folder / "orchestration", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder / "pyproject.toml")
    document = yaml.safe_load((ROOT / "orchestration/defs/flights/defs.yaml").read_text())
    shutil.rmtree(folder / "orchestration/defs/flights")
    for number in range(PIPELINES):
        name = f"bench_{uuid.uuid4().hex[:6]}_{number}"
        tables = [{"kind": kind, "table": f"{name}.t", "mode": "upsert_delete"} for kind in KINDS]
        source = {**document["attributes"]["source"], "topics": [topic]}
        attributes = {**document["attributes"], "source": source, "tables": tables}
        (folder / "orchestration/defs" / name).mkdir()
        file = folder / "orchestration/defs" / name / "defs.yaml"
        file.write_text(yaml.safe_dump({"type": "orchestration.components.KafkaPipeline", "attributes": attributes}))


def _load() -> tuple[float, dg.Definitions]:
    """Seconds from reading the files to a repository that can be shown."""
    from orchestration.definitions import defs

    began = time.monotonic()
    whole = defs()
    whole.get_repository_def().get_all_jobs()
    return time.monotonic() - began, whole


def _tick(definitions: dg.Definitions) -> float:
    with dg.instance_for_test() as instance:
        began = time.monotonic()
        for sensor in definitions.sensors or []:
            if sensor.name != "failure_alert":
                result = sensor.evaluate_tick(dg.build_sensor_context(instance, definitions=definitions))
                assert result.run_requests or not sensor.name.endswith("_lag"), result.skip_message
        return time.monotonic() - began


def _show_day(definitions: dg.Definitions) -> bool:
    """Times the queries of the pages of one pipeline, with a day of it in the instance and without."""
    jobs = [job.name for job in definitions.get_repository_def().get_all_jobs()]
    name = next(job.removesuffix("_plan") for job in sorted(jobs) if job.endswith("_plan"))
    with dg.instance_for_test() as instance:
        fill_day(instance, definitions, name, runs=10)
        before = time_pages(instance, definitions, name)
        fill_day(instance, definitions, name, runs=1430)
        after = time_pages(instance, definitions, name)
    calm = True
    for page, seconds in after.items():
        calm &= seconds < max(0.5, 2 * before[page])
        print(f"{page}: {before[page] * 1000:.0f} ms after 10 runs, {seconds * 1000:.0f} ms after 1,440")
    return calm


if __name__ == "__main__":
    sys.exit(inside() if sys.argv[1:] == [_INSIDE] else main())

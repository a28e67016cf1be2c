"""Fifty pipelines with three tables each: how long Dagster takes to load them, and one tick of all their sensors.

Bounds to hold: load in under 10 s, all sensors in under 60 s. Starts the local services that it needs.
"""

from __future__ import annotations

import sys
import time
import uuid

import dagster as dg

from resources.connections import KafkaConnection, data_folder, load_connections
from resources.local import stack
from resources.local.flights.produce import produce_flights
from tests.benchmarks._fifty import INSIDE, KINDS, PIPELINES, in_project, load


def main() -> int:
    stack.up(data_folder(), ["kafka", "spark", "clickhouse"], print)
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    bootstrap = load_connections(data_folder() / "connections.yaml").get("kafka", KafkaConnection).bootstrap_servers
    produce_flights(bootstrap, topic)
    return in_project("tests.benchmarks.dagster_load", topic)


def inside() -> int:
    """In the project with the fifty pipelines, in a fresh process."""
    loading, definitions = load()
    ticking = _tick(definitions)
    print(f"load of {PIPELINES} pipelines with {len(KINDS)} tables each: {loading:.1f} s (bound 10 s)")
    sensors = list(definitions.sensors or [])
    print(f"one tick of all {len(sensors) - 1} sensors of pipelines: {ticking:.1f} s (bound 60 s)")
    return 0 if loading < 10 and ticking < 60 else 1


def _tick(definitions: dg.Definitions) -> float:
    with dg.instance_for_test() as instance:
        began = time.monotonic()
        for sensor in definitions.sensors or []:
            if sensor.name != "failure_alert":
                result = sensor.evaluate_tick(dg.build_sensor_context(instance, definitions=definitions))
                assert result.run_requests or not sensor.name.endswith("_lag"), result.skip_message
        return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(inside() if sys.argv[1:] == [INSIDE] else main())

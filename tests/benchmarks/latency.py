"""From a request to the commit: runs that a daemon starts on warm services, into one table and into three.

Median and worst of so many runs: seconds from the moment that the run is asked for (what a tick does) to the last
table's materialization, which is written after its commit; and the parts of it.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from orchestration.cli.instance import SETTINGS
from resources.connections import Connections, load_connections
from resources.local import stack
from resources.local.ports import free_port
from tests.kit import specs
from tests.kit.dagster_dev import ask, running
from tests.kit.flow import Flow
from tests.kit.records import Record, bootstrap, produce
from tests.kit.waiting import until

RUNS, RECORDS, WARM_UP = 20, 1_000, 2
_LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_PARTS = ("asked -> process", "process -> first step", "first step -> last commit", "asked -> last commit")


@dataclass(frozen=True)
class Timed:
    """Seconds of one run, in the order of `_PARTS`."""

    to_process: float
    to_step: float
    to_commit: float

    @property
    def parts(self) -> tuple[float, ...]:
        return (self.to_process, self.to_step, self.to_commit, self.to_process + self.to_step + self.to_commit)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    flows = [
        # Without a schedule that gets in the way.
        Flow("one", ["upsert"], name="one", overrides={"paused": True}),
        Flow("three", ["append", "upsert", "upsert_delete"], name="three", overrides={"paused": True}),
    ]
    with daemon(flows) as (connections, instance, page):
        for flow in flows:
            _measure(flow, runs, connections, instance, page)


@contextmanager
def daemon(flows: Sequence[Flow]) -> Iterator[tuple[Connections, dg.DagsterInstance, str]]:
    """Kafka and Spark, a Dagster with its daemon on these pipelines, and their topics: connections, instance, page."""
    with tempfile.TemporaryDirectory() as text, ExitStack() as ends:
        home = Path(text)
        ends.callback(stack.down, home, print)
        site = stack.up(home, ["kafka", "spark"], print)
        connections = load_connections(site.home / "connections.yaml")
        admin = AdminClient({"bootstrap.servers": bootstrap(connections)})
        for flow in flows:
            specs.write(home / "pipelines", flow.name, flow.spec_document)
            admin.create_topics([NewTopic(flow.topic, num_partitions=1)])[flow.topic].result(timeout=30)
        (home / "dagster").mkdir()
        (home / "dagster" / "dagster.yaml").write_text(SETTINGS.read_text())
        environment = {
            "DAGSTER_HOME": str(home / "dagster"),
            "BATCHMERGE_PIPELINES": str(home / "pipelines"),
            "BATCHMERGE_CONNECTIONS": str(site.home / "connections.yaml"),
        }
        os.environ.update(environment)
        command = [sys.executable, "-m", "dagster", "dev", "-m", "orchestration.definitions", "--host", "127.0.0.1"]
        instance = ends.enter_context(dg.DagsterInstance.from_config(str(home / "dagster")))
        page = ends.enter_context(running(command, free_port(()), environment, home / "log"))
        yield connections, instance, page


def _measure(flow: Flow, runs: int, connections: Connections, instance: dg.DagsterInstance, page: str) -> None:
    timed = []
    for number in range(WARM_UP + runs):
        records = [Record(0, n, {"id": n, "name": "n", "amount": 1.0, "op": "u"}) for n in range(RECORDS)]
        produce(bootstrap(connections), flow.topic, records)
        found = _one(flow, instance, page)
        if number >= WARM_UP:
            timed.append(found)
    print(f"{len(flow.modes)} tables, {RECORDS} records, {runs} runs: median and worst, seconds")
    for name, seconds in zip(_PARTS, zip(*(one.parts for one in timed), strict=True), strict=True):
        print(f"  {name:<28}{statistics.median(seconds):6.2f}{max(seconds):8.2f}")


def _one(flow: Flow, instance: dg.DagsterInstance, page: str) -> Timed:
    selector = {
        "repositoryLocationName": "orchestration.definitions",
        "repositoryName": "__repository__",
        "jobName": flow.name,
    }
    hour = time.strftime("%Y-%m-%d-%H:00", time.gmtime())
    tags = {"executionMetadata": {"tags": [{"key": "dagster/partition", "value": hour}]}}
    asked = time.time()
    answer = ask(page, _LAUNCH, {"p": {"selector": selector, "mode": "default", **tags}})["launchRun"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    run_id = answer["run"]["runId"]
    until(lambda: (run := instance.get_run_by_id(run_id)) and run.is_finished)
    run = instance.get_run_by_id(run_id)
    assert run
    assert run.is_success, [e.message for e in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)]
    first = _times(instance, run_id, dg.DagsterEventType.STEP_START)[0]
    began = _times(instance, run_id, dg.DagsterEventType.RUN_START)[0]
    commits = _times(instance, run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
    return Timed(began - asked, first - began, commits[-1] - first)


def _times(instance: dg.DagsterInstance, run_id: str, kind: dg.DagsterEventType) -> list[float]:
    return sorted(entry.timestamp for entry in instance.all_logs(run_id, of_type=kind))


if __name__ == "__main__":
    main()

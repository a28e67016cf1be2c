"""How soon a record is in its Iceberg table, under Dagster's daemon, on warm services.

From tick to commit: a run that is asked for as a schedule does, with the records waiting; until the last table's
materialization, which is written after its commit. From produce to visible: a resident run (`interval: 1s`) while
records come evenly; until their offset is committed in the table, looked at 20 times a second.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
import uuid
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
from confluent_kafka import Producer

from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from resources.connections import KafkaConnection
from resources.local.ports import free_port
from tests.benchmarks._project import Project, event_times
from tests.benchmarks._records import as_json, rows
from tests.benchmarks._report import Measure, report
from tests.benchmarks._workload import PARTITIONS, document, fill, services
from tests.kit.dagster_dev import ask, running
from tests.kit.waiting import PATIENCE, until

_MODES, _WARM_UP, _WARM_SECONDS, _PARTS = ("append", "upsert", "upsert_delete"), 2, 10, 10
_LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""


@dataclass(frozen=True)
class Daemon:
    """A Dagster with its daemon on a project's pipelines."""

    project: Project
    instance: dg.DagsterInstance
    page: str


@dataclass(frozen=True)
class Timed:
    """Seconds of one run: asked for → its process → its first step → its last commit."""

    to_process: float
    to_step: float
    to_commit: float

    @property
    def whole(self) -> float:
        return self.to_process + self.to_step + self.to_commit


def measure(options: Namespace) -> Iterator[Measure]:
    topics = [f"latency-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    with services("kafka", "spark", home=options.home) as (home, connections):
        for topic in topics:
            fill(connections, topic, ())
        project = Project.make(home, connections)
        asked = {
            count: project.add(topics[0], [{"kind": "iceberg", "mode": mode} for mode in _MODES[:count]], paused=True)
            for count in (1, 3)
        }
        tables = [{"kind": "iceberg", "mode": "append"}]
        resident = project.add(topics[1], tables, changes={}, interval="1s")
        project.command("pause", resident)
        command = [sys.executable, "-m", "dagster", "dev", "-m", "orchestration.definitions", "--host", "127.0.0.1"]
        at = str(project.folder / "dagster")
        with (
            dg.DagsterInstance.from_config(at) as instance,
            running(command, free_port(()), project.environment, project.folder / "log") as page,
        ):
            daemon = Daemon(project, instance, page)
            for count, name in asked.items():
                runs = [one_run(daemon, name, topics[0], options.rows) for _ in range(_WARM_UP + options.runs)][
                    _WARM_UP:
                ]
                yield Measure(
                    what=f"from tick to commit, {options.rows:,} records, {count} table{'s' if count > 1 else ''}",
                    unit="s",
                    turns=tuple(run.whole for run in runs),
                    beside={
                        "until the run's process begins": tuple(run.to_process for run in runs),
                        "until its first step": tuple(run.to_step for run in runs),
                        "until the last commit": tuple(run.to_commit for run in runs),
                    },
                    headline=count == 1,
                )
            project.command("resume", resident)
            took = resident_seconds(project, resident, tables, topics[1], options)
    cuts = statistics.quantiles(took, n=100)
    yield Measure(
        what=f"from produce to visible, {options.rate:,} records a second for {options.seconds} s: p50",
        unit="s",
        turns=(cuts[49],),
        beside={"p99": (cuts[98],), "longest": (max(took),)},
        headline=True,
    )


def one_run(daemon: Daemon, name: str, topic: str, count: int) -> Timed:
    fill(daemon.project.connections, topic, range(count))
    where = {"repositoryLocationName": "orchestration.definitions", "repositoryName": "__repository__"}
    hour = time.strftime("%Y-%m-%d-%H:00", time.gmtime())
    tags = {"executionMetadata": {"tags": [{"key": "dagster/partition", "value": hour}]}}
    parameters = {"selector": {**where, "jobName": name}, "mode": "default", **tags}
    asked = time.time()
    answer = ask(daemon.page, _LAUNCH, {"p": parameters})["launchRun"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    run_id, instance = answer["run"]["runId"], daemon.instance
    until(lambda: (run := instance.get_run_by_id(run_id)) and run.is_finished)
    run = instance.get_run_by_id(run_id)
    assert run
    assert run.is_success, [e.message for e in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)]
    began = event_times(instance, run_id, dg.DagsterEventType.RUN_START)[0]
    first = event_times(instance, run_id, dg.DagsterEventType.STEP_START)[0]
    commits = event_times(instance, run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
    return Timed(began - asked, first - began, commits[-1] - first)


def resident_seconds(
    project: Project, name: str, tables: list[dict[str, Any]], topic: str, options: Namespace
) -> list[float]:
    """Of each tenth of a second's records how long they took, after the first seconds."""
    spec = PipelineSpec.model_validate(document(name, topic, tables, changes={}, interval="1s"))
    (destination,) = Pipeline(name, spec, project.connections).destinations()
    sent, each = list[tuple[int, float]](), options.rate // _PARTS

    def send() -> None:
        servers = project.connections.get("kafka", KafkaConnection).bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "compression.type": "lz4"})
        for turn in range((_WARM_SECONDS + options.seconds) * _PARTS):
            began = time.monotonic()
            ids = np.arange(turn * each, (turn + 1) * each)
            for key, value, n in zip(as_json(pa.table({"id": ids})), as_json(rows(ids)), ids.tolist(), strict=True):
                producer.produce(topic, key=key, value=value, partition=n % PARTITIONS)
            producer.flush()
            sent.append(((turn + 1) * each, began))
            time.sleep(max(0.0, began + 1 / _PARTS - time.monotonic()))

    def reached() -> int:
        """Of records in the order of their ids: the first one that is not there."""
        state = destination.committed()
        found: Offsets = state.offsets if state else {}
        return min((found.get(tp, 0) for tp in found), default=0) * PARTITIONS

    fill(project.connections, topic, range(PARTITIONS))
    until(lambda: reached() > 0, what="first batch of the resident run")
    sender, seen, took = threading.Thread(target=send), 0, list[float]()
    sender.start()
    first, last = _WARM_SECONDS * options.rate, (_WARM_SECONDS + options.seconds) * options.rate
    # Records that are in the topic before the first one that is measured.
    before, end = PARTITIONS, time.monotonic() + PATIENCE
    while seen < last:
        assert time.monotonic() < end, f"{last - seen:,} records are not in the table"
        offset, now = reached() - before, time.monotonic()
        took += [now - began for after, began in list(sent) if seen < after <= offset and after > first]
        seen = max(seen, offset)
        time.sleep(0.05)
    sender.join()
    return took


if __name__ == "__main__":
    report(__doc__, measure, rows=(1_000, 100), runs=(8, 1), rate=(1_000, 1_000), seconds=(40, 5))

"""How soon a record is in its Iceberg table, under Dagster's daemon, on warm services.

"From tick to commit": a run is requested as by a schedule while the records wait. The time ends at the last table's
materialization, which is written after its commit. "From produce to visible": a continuous run (`interval: 1s`)
works while records arrive evenly. The time ends when the table's newest snapshot has the record; the benchmark
looks 20 times a second. Beside it, on the same broker, catalog and disk: the Apache Iceberg sink at its shortest
interval, and Apache Flink, whose checkpoints are its commits. Only one of them works at a time.
"""

from __future__ import annotations

import statistics
import sys
import time
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg

from jobs.spec.pipeline import PipelineSpec
from resources.connections import IcebergConnection
from resources.iceberg import IcebergCatalog
from resources.local.ports import free_port
from tests.benchmarks import _flink_sink as flink_sink
from tests.benchmarks import _iceberg_sink as iceberg_sink
from tests.benchmarks._project import Project, event_times
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._visible import rows_of, seconds_until_visible
from tests.benchmarks._workload import document, fill, services
from tests.kit.dagster_dev import ask, running
from tests.kit.waiting import until

_MODES, _WARM_UP = ("append", "upsert", "upsert_delete"), 2
_APPEND = [{"kind": "iceberg", "mode": "append"}]
_OURS = "ours"
_BESIDE = {
    f"Apache Iceberg sink {iceberg_sink.VERSION}, commits every 1 s": iceberg_sink.sink,
    f"Apache Flink {flink_sink.VERSION}, checkpoints every 1 s": flink_sink.flink,
}
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
    asked_for, continuous, *others = (f"latency-{uuid.uuid4().hex[:8]}" for _ in range(2 + len(_BESIDE)))

    def visible(topic: str, rows_now: Callable[[], int]) -> list[float]:
        return seconds_until_visible(connections, topic, rows_now, options.rate, options.seconds)

    with services("kafka", "spark", home=options.home) as (home, connections):
        for topic in (asked_for, continuous, *others):
            fill(connections, topic, ())
        project = Project.make(home, connections)
        by_count = {
            count: project.add(asked_for, [{"kind": "iceberg", "mode": mode} for mode in _MODES[:count]], paused=True)
            for count in (1, 3)
        }
        pipeline = project.add(continuous, _APPEND, changes={}, interval="1s")
        project.command("pause", pipeline)
        with daemon_on(project) as daemon:
            for count, name in by_count.items():
                yield _tick_to_commit(daemon, name, asked_for, count, options)
            project.command("resume", pipeline)
            took = {_OURS: visible(continuous, _rows_of_pipeline(project, pipeline, continuous))}
        for (who, start), topic in zip(_BESIDE.items(), others, strict=True):
            with start(home, connections, topic, commit_ms=1000) as sink:
                took[who] = visible(topic, sink.rows)
    yield from _produce_to_visible(took, options)


@contextmanager
def daemon_on(project: Project) -> Iterator[Daemon]:
    command = [sys.executable, "-m", "dagster", "dev", "-m", "orchestration.definitions", "--host", "127.0.0.1"]
    with (
        dg.DagsterInstance.from_config(str(project.folder / "dagster")) as instance,
        running(command, free_port(()), project.environment, project.folder / "log") as page,
    ):
        yield Daemon(project, instance, page)


def _tick_to_commit(daemon: Daemon, name: str, topic: str, tables: int, options: Namespace) -> Measure:
    runs = [one_run(daemon, name, topic, options.rows) for _ in range(_WARM_UP + options.runs)][_WARM_UP:]
    return Measure(
        what=f"from tick to commit, {options.rows:,} records, {tables} table{'s' if tables > 1 else ''}",
        unit="s",
        turns=tuple(run.whole for run in runs),
        beside={
            "until the run's process begins": tuple(run.to_process for run in runs),
            "until its first step": tuple(run.to_step for run in runs),
            "until the last commit": tuple(run.to_commit for run in runs),
        },
        headline=tables == 1,
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


def _rows_of_pipeline(project: Project, name: str, topic: str) -> Callable[[], int]:
    """How many rows the pipeline's table has now."""
    (table, *_) = PipelineSpec.model_validate(document(name, topic, _APPEND, changes={})).tables
    catalog = IcebergCatalog("lake", project.connections.get("lake", IcebergConnection))
    return lambda: rows_of(catalog.load(table.table))


def _produce_to_visible(took: dict[str, list[float]], options: Namespace) -> Iterator[Measure]:
    for what, cut in (("p50", 49), ("p99", 98)):
        figures = {who: statistics.quantiles(seconds, n=100)[cut] for who, seconds in took.items()}
        ours = figures.pop(_OURS)
        yield Measure(
            what=f"from produce to visible, {options.rate:,} records a second for {options.seconds} s: {what}",
            unit="s",
            turns=(ours,),
            beside={who: (figure,) for who, figure in figures.items()},
            headline=True,
        )


SIZES: Sizes = {"rows": (10_000, 100), "runs": (20, 1), "rate": (1_000, 1_000), "seconds": (40, 5)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

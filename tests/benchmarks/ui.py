"""Whether a day of commits every five seconds makes Dagster's pages slower than a day of runs every five minutes.

Both days are written into instances of their own (SQLite, as `batchmerge` uses it). One day has the events of 24
continuous runs, one an hour, thinned by `orchestration.continuous.step`, with a simulated clock. The other day has
runs of the pipeline's job. The steps do no work, so no other service is needed. Then a webserver answers the
questions of the pages: a table's page (materializations, plots, partitions, checks), the overview of all assets,
and the runs.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import dagster as dg

from jobs.batch import CommittedState, LandedBatch, MergeCounts
from jobs.destinations.merge_context import Merged
from jobs.merged import MergedBatches
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli.instance import SETTINGS
from orchestration.components import KafkaPipeline, assets, checks, metadata
from orchestration.components.ends import Ends
from orchestration.components.launch import Launch
from orchestration.components.merging import TableResult
from orchestration.components.merging import report as report_of_table
from orchestration.continuous import step
from orchestration.continuous.step import ContinuousStep
from orchestration.names import continuous_job, landing_key, table_key, topic_keys
from orchestration.sensors.waiting import Waiting
from resources.local.ports import free_port
from tests.benchmarks._report import Measure, Sizes, report
from tests.kit import specs
from tests.kit.batches import P0, committed, landed
from tests.kit.dagster_dev import ask, running

_NAME, _INTERVAL, _MINUTES = "orders", 5, 5
_QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
# Each look finds another record in Kafka, and that nothing waits.
_SEEN = (Waiting({P0: end}, 0, 0) for end in itertools.count(1))
_DOCUMENT = specs.document(
    specs.table("iceberg", "upsert", "web.orders"), columns={"id": "long", "name": "string"}, key=specs.ID
)
_EVERY_HOUR = 3600 // _INTERVAL
_DAYS = {f"a day at {_INTERVAL} s": {"interval": f"{_INTERVAL}s"}, f"a day of {_MINUTES}-minute runs": {}}
_QUESTIONS = {
    "a table's materializations": """query($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
        assetMaterializations(limit: 100) { timestamp runId partition tags { key value }
            metadataEntries { label ... on IntMetadataEntry { intValue } ... on FloatMetadataEntry { floatValue } } }
        assetObservations(limit: 100) { timestamp runId } } } }""",
    "a table's plots": """query($key: AssetKeyInput!, $hours: [String!]) { assetOrError(assetKey: $key) { ... on Asset {
        assetMaterializations(partitions: $hours) { timestamp partition
            metadataEntries { label ... on IntMetadataEntry { intValue } ... on FloatMetadataEntry { floatValue } } }
        } } }""",
    "a table's partitions": """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
        partitionStats { numMaterialized numFailed numPartitions } assetPartitionStatuses {
            ... on TimePartitionStatuses { ranges { startKey endKey status } } } } } }""",
    "a table's checks": """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
        assetChecksOrError { ... on AssetChecks { checks { name
            executionForLatestMaterialization { status timestamp evaluation { success description } } } } } } } }""",
    "the overview of all assets": """query($keys: [AssetKeyInput!]) { assetNodes(assetKeys: $keys) { assetKey { path }
        staleStatus assetMaterializations(limit: 1) { timestamp runId } freshnessStatusInfo { freshnessStatus } } }""",
    "the runs": """query { runsOrError(limit: 25) { ... on Runs { results {
        runId status startTime endTime tags { key value } assetSelection { path } } } } }""",
}


def measure(options: Namespace) -> Iterator[Measure]:
    took = list[dict[str, tuple[float, ...]]]()
    with tempfile.TemporaryDirectory() as text:
        for (name, parts), write in zip(_DAYS.items(), (run_continuously, run_often), strict=True):
            day, began = Day.make(Path(text) / name.replace(" ", "-"), parts), time.monotonic()
            with day.instance() as instance:
                write(day, instance, options.hours)
                counted = ", ".join(f"{count:,} {what}" for what, count in day.events(instance).items())
            print(f"{name}: {counted}; written in {time.monotonic() - began:.0f} s", flush=True)
            took.append(day.answers(options.turns))
    ours, others = took
    for question in _QUESTIONS:
        yield Measure(
            what=f"{question}, after {options.hours} hours of commits every {_INTERVAL} s",
            unit="s",
            turns=ours[question],
            beside={f"of runs every {_MINUTES} minutes": others[question]},
        )


@dataclass(frozen=True)
class Day:
    """A project of one pipeline, and its Dagster instance."""

    folder: Path
    spec: PipelineSpec

    @classmethod
    def make(cls, folder: Path, parts: Mapping[str, Any]) -> Day:
        (folder / "dagster").mkdir(parents=True)
        (folder / "dagster" / "dagster.yaml").write_text(SETTINGS.read_text())
        document = {**_DOCUMENT, **parts}
        specs.write(folder / "pipelines", _NAME, document)
        return cls(folder, PipelineSpec.model_validate(document))

    @property
    def keys(self) -> list[dg.AssetKey]:
        return [*topic_keys(_NAME, self.spec.source), landing_key(_NAME), table_key(self.spec.tables[0])]

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        with dg.DagsterInstance.from_config(str(self.folder / "dagster")) as found:
            yield found

    def events(self, instance: dg.DagsterInstance) -> dict[str, int]:
        made = [len(instance.fetch_materializations(key, limit=10_000).records) for key in self.keys]
        return {"runs": instance.get_runs_count(), "materializations": sum(made)}

    def answers(self, turns: int) -> dict[str, tuple[float, ...]]:
        """Seconds by question, after one that nobody counts."""
        environment = {
            "DAGSTER_HOME": str(self.folder / "dagster"),
            "BATCHMERGE_HOME": str(self.folder / "home"),
            "BATCHMERGE_PIPELINES": str(self.folder / "pipelines"),
        }
        command = [str(Path(sys.executable).with_name("dagster-webserver")), "-m", "orchestration.definitions"]
        keys = [{"path": key.path} for key in self.keys]
        last = datetime.now(UTC)
        hours = [f"{last - timedelta(hours=ago):%Y-%m-%d-%H:00}" for ago in range(120)]
        variables = {"key": keys[-1], "keys": keys, "hours": hours}
        with running(command, free_port(()), environment, self.folder / "log") as page:

            def seconds(question: str) -> float:
                used = {name: value for name, value in variables.items() if f"${name}:" in question}
                began = time.monotonic()
                answer = ask(page, question, used)
                assert all(answer.values()), question  # an error of Dagster's has none of the fields asked for
                return time.monotonic() - began

            return {what: tuple(seconds(one) for _ in range(turns + 1))[1:] for what, one in _QUESTIONS.items()}


def run_continuously(day: Day, instance: dg.DagsterInstance, hours: int) -> None:
    """A continuous run an hour."""
    for hour in range(hours):
        clock = Clock(datetime.now(UTC) - timedelta(hours=hours - hour - 1), time.monotonic())

        def play(step: ContinuousStep, _: object, hour: int = hour, clock: Clock = clock) -> None:
            clock.restart()
            waiting = list[LandedBatch]()
            for number in range(hour * _EVERY_HOUR + 1, (hour + 1) * _EVERY_HOUR + 1):
                clock.played += _INTERVAL
                waiting.append(landed(number))
                if step.is_due(has_changes=True):
                    _report(step, waiting, clock)
                    waiting = []

        with (
            mock.patch.object(ContinuousStep, "run", play),
            mock.patch.multiple(step, time=clock, datetime=clock, look_at=lambda *_: next(_SEEN)),
        ):
            made = KafkaPipeline(_NAME, day.spec).definitions().resolve_job_def(continuous_job(_NAME))
            assert made.execute_in_process(_QUIET, instance=instance).success


def _report(step: ContinuousStep, batches: Sequence[LandedBatch], clock: Clock) -> None:
    """As `orchestration.continuous.landing` and `.merging` do, which ask tables for what is made up here."""
    rows = metadata.total(batches).landed
    if step.table is None:
        results, shown = _landed(step.key, step.launch.spec, batches)
        step.observe_topics(len(batches), rows)
    else:
        results, shown = _merged(step.key, step.launch.spec, batches, clock.now(UTC))
    version = batches[-1].batch.commit_id
    step.materialize(shown, results, version, batches=len(batches), rows=rows)


def run_often(day: Day, instance: dg.DagsterInstance, hours: int) -> None:
    """The pipeline's job, whose steps have a batch each time."""
    number, began = 0, datetime.now(UTC) - timedelta(hours=hours - 1)

    def land(_: object, launch: Launch, key: dg.AssetKey, *__: object) -> Iterator[dg.MaterializeResult[Any]]:
        results, shown = _landed(key, launch.spec, [landed(number)])
        yield dg.MaterializeResult(asset_key=key, check_results=results, metadata=shown)

    def merge(_: object, launch: Launch, key: dg.AssetKey, *__: object) -> Iterator[dg.MaterializeResult[Any]]:
        results, shown = _merged(key, launch.spec, [landed(number)], datetime.now(UTC))
        yield dg.MaterializeResult(asset_key=key, check_results=results, metadata=shown)

    with mock.patch.multiple(assets, run_landing=land, run_merge=merge):
        made = KafkaPipeline(_NAME, day.spec).definitions().resolve_job_def(_NAME)
        for number in range(1, hours * 60 // _MINUTES + 1):
            hour = began + timedelta(minutes=(number - 1) * _MINUTES)
            done = made.execute_in_process(
                instance=instance, partition_key=f"{min(hour, datetime.now(UTC)):%Y-%m-%d-%H:00}"
            )
            assert done.success


Reported = tuple[list[dg.AssetCheckResult], dict[str, Any]]


def _landed(key: dg.AssetKey, spec: PipelineSpec, batches: Sequence[LandedBatch]) -> Reported:
    state = CommittedState.after(batches[-1])
    results = [*checks.landing_results(key, batches), checks.fields_result(key, spec, batches)]
    return results, {**metadata.landed(batches, 1.0), **metadata.progress(state.watermark, 0, datetime.now(UTC))}


def _merged(key: dg.AssetKey, spec: PipelineSpec, batches: Sequence[LandedBatch], at: datetime) -> Reported:
    after = CommittedState.after(batches[-1])
    merged = Merged(MergeCounts(changes=18, inserted=9, updated=9), "1", {"read": 0.1, "write": 0.2, "commit": 0.1})
    merge = MergedBatches([*batches], committed(max(1, batches[0].number - 1)), merged)
    done = TableResult(merge, after, batches, 0, 0, (), 1_000)
    pipeline = cast(Pipeline, SimpleNamespace(name=_NAME, spec=spec, run_id="played"))
    return report_of_table(pipeline, key, spec.tables[0], done, None, Ends(at, TopicState({}, after.offsets, {})))


@dataclass
class Clock:
    """In place of `time` and `datetime` where events are thinned."""

    began: datetime
    monotonic_began: float
    played: float = 0.0

    def restart(self) -> None:
        self.played = 0.0

    def monotonic(self) -> float:
        return self.monotonic_began + self.played

    def time(self) -> float:
        return self.began.timestamp() + self.played

    def now(self, _: object) -> datetime:
        return self.began


SIZES: Sizes = {"hours": (24, 1), "turns": (20, 3)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)

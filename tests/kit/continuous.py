"""Pipelines, mostly continuous ones (`interval`), under a Dagster daemon of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from orchestration.cli.instance import SETTINGS
from orchestration.names import CONTINUOUS_TAG
from resources.local.ports import free_port
from tests.kit import specs
from tests.kit.dagster_dev import running
from tests.kit.waiting import until

STATUS = dg.DagsterRunStatus


@dataclass(frozen=True)
class ContinuousRun:
    """The pipeline, the daemon's instance and its log, and the address of its page."""

    name: str
    instance: dg.DagsterInstance
    log: Path
    page: str

    def until(self, wanted: Callable[[], object]) -> None:
        until(wanted, self.log)

    def runs(self, *statuses: dg.DagsterRunStatus) -> Sequence[dg.DagsterRun]:
        return self.instance.get_runs(dg.RunsFilter(tags={CONTINUOUS_TAG: self.name}, statuses=list(statuses)))

    def started(self, besides: str = "") -> dg.DagsterRun:
        """The continuous run, or the one after this one."""
        self.until(lambda: [r for r in self.runs(STATUS.STARTED) if r.run_id != besides])
        return next(r for r in self.runs(STATUS.STARTED) if r.run_id != besides)

    def ends(self, run_id: str, kind: dg.DagsterEventType) -> set[str | None]:
        """The steps of a run that have ended with this event."""
        found = self.instance.all_logs(run_id, of_type=kind)
        return {entry.dagster_event.step_key for entry in found if entry.dagster_event}

    def materialization(self, key: dg.AssetKey) -> dg.AssetMaterialization | None:
        """The newest one."""
        return next(iter(self.materializations(key)), None)

    def materializations(self, key: dg.AssetKey) -> list[dg.AssetMaterialization]:
        """All materializations, the newest first."""
        found = self.instance.fetch_materializations(key, limit=100).records
        return [record.asset_materialization for record in found if record.asset_materialization]


@contextmanager
def continuous_run(
    folder: Path, connections: Path, name: str, document: Mapping[str, object], **environment: str
) -> Iterator[ContinuousRun]:
    """A continuous run: the only pipeline of a daemon."""
    with continuous_runs(folder, connections, {name: document}, **environment) as found:
        yield found[name]


@contextmanager
def continuous_runs(
    folder: Path, connections: Path, documents: Mapping[str, Mapping[str, object]], **environment: str
) -> Iterator[dict[str, ContinuousRun]]:
    """The pipelines of a daemon by name; the daemon runs until the block ends, with this connections file."""
    home, log = folder / "dagster", folder / "log"
    for name, document in documents.items():
        specs.write(folder / "pipelines", name, document)
    home.mkdir()
    (home / "dagster.yaml").write_text(SETTINGS.read_text())
    variables = {
        "DAGSTER_HOME": str(home),
        "BATCHMERGE_PIPELINES": str(folder / "pipelines"),
        "BATCHMERGE_CONNECTIONS": str(connections),
        **environment,
    }
    command = [sys.executable, "-m", "dagster", "dev", "-m", "orchestration.definitions", "--host", "127.0.0.1"]
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        running(command, free_port(()), variables, log) as page,
    ):
        yield {name: ContinuousRun(name, instance, log, page) for name in documents}

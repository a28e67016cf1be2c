"""A project as users have it: a folder of pipeline files, and the command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import dagster as dg
import psutil

from orchestration.cli.instance import SETTINGS
from resources.connections import Connections
from tests.benchmarks._spent import Spent, spark_server, spent
from tests.benchmarks._workload import document, new_name
from tests.kit import specs
from tests.kit.connections_file import write_connections

PROGRAM = Path(sys.executable).parent / "batchmerge"


@dataclass(frozen=True)
class Run:
    """One `batchmerge run`.

    Attributes:
        working: seconds from the start of its first step to the last table's commit, by Dagster's log.
        whole: the command and the Spark server.
    """

    working: float
    whole: Spent


@dataclass(frozen=True)
class Project:
    folder: Path
    home: Path
    connections: Connections

    @classmethod
    def make(cls, home: Path, connections: Connections, **others: dict[str, str]) -> Project:
        """A new one on the services of this data folder, with other connections besides."""
        folder = home / new_name()
        (folder / "dagster").mkdir(parents=True)
        (folder / "dagster" / "dagster.yaml").write_text(SETTINGS.read_text())
        write_connections(home, folder, **others)
        return cls(folder, home, connections)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "BATCHMERGE_HOME": str(self.home),
            "BATCHMERGE_CONNECTIONS": str(self.folder / "connections.yaml"),
            "BATCHMERGE_PIPELINES": str(self.folder / "pipelines"),
            "DAGSTER_HOME": str(self.folder / "dagster"),
        }

    def add(self, topic: str, tables: Sequence[dict[str, Any]], **parts: object) -> str:
        """The name of a new pipeline."""
        name = new_name()
        specs.write(self.folder / "pipelines", name, document(name, topic, tables, **parts))
        return name

    def command(self, *arguments: str) -> Spent:
        """`batchmerge` with these arguments; what it has used, and the Spark server meanwhile."""
        # Users have compiled modules; a shell that keeps them from being written would measure the compiler.
        environment = {**os.environ, **self.environment}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with spent(spark_server(self.home)) as found:
            running = subprocess.Popen(
                [PROGRAM, *arguments], env=environment, cwd=self.folder, stdout=PIPE, stderr=STDOUT, text=True
            )
            found.roots.append(psutil.Process(running.pid))
            output, _ = running.communicate()
        assert running.returncode == 0, output
        return found

    def run(self, name: str) -> Run:
        """`batchmerge run`: until everything that Kafka has is in every table."""
        whole = self.command("run", name)
        with dg.DagsterInstance.from_config(str(self.folder / "dagster")) as instance:
            (run,) = instance.get_runs(limit=1)
            began = event_times(instance, run.run_id, dg.DagsterEventType.STEP_START)[0]
            ended = event_times(instance, run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)[-1]
        return Run(ended - began, whole)


def event_times(instance: dg.DagsterInstance, run_id: str, kind: dg.DagsterEventType) -> list[float]:
    """Seconds since 1970 of a run's events of this type, in order."""
    return sorted(entry.timestamp for entry in instance.all_logs(run_id, of_type=kind))

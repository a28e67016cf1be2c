"""The services under the soak, each of which can be killed and started again: its data and its address stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from jobs.connections_file import load_connections
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections
from resources.errors import BatchmergeError
from resources.local import stack as local_stack
from tests.kit.flow import ROOT
from tests.kit.kinds import KINDS, unavailable
from tests.kit.project import Project
from tests.kit.rest_catalog import RestCatalog, connections_with
from tests.kit.waiting import until

CATALOG = "catalog"


@dataclass
class Services:
    """Kafka, Spark, a REST catalog, and the systems of the tables.

    Attributes:
        home: the data folder of the local stack.
        folder: for the catalog and the connections file.
    """

    home: Path
    folder: Path
    catalog: RestCatalog = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = RestCatalog(self.folder / "catalog")

    @property
    def kinds(self) -> list[str]:
        """The systems that can run here."""
        return [name for name in ("iceberg", "clickhouse", "bigquery") if unavailable(KINDS[name]) is None]

    @property
    def mortal(self) -> list[str]:
        """Those that are killed."""
        others = {"clickhouse": ["clickhouse", "zookeeper"], "bigquery": ["bigquery"]}
        return [CATALOG, "kafka", "spark", *(name for kind in self.kinds for name in others.get(kind, []))]

    @property
    def connections_file(self) -> Path:
        return self.folder / "connections.yaml"

    @property
    def connections(self) -> Connections:
        return load_connections(self.connections_file)

    def start(self) -> None:
        self._stack_up()
        self.catalog.start()
        connections_with(self.catalog.connection, self.home / "connections.yaml", self.connections_file)

    def kill(self, name: str) -> None:
        if name == CATALOG:
            self.catalog.kill()
            return
        pid = next(s.pid for s in local_stack.status(self.home) if s.name == name)
        assert pid, f"{name} does not run"
        os.kill(pid, signal.SIGKILL)
        until(lambda: _state(self.home, name) != "running", what=f"end of {name}")

    def restart(self, name: str) -> None:
        if name == CATALOG:
            self.catalog.start()
        else:
            self._stack_up()
        if name in ("clickhouse", "zookeeper"):
            until(self._keeper_answers, what="answer of the keeper")

    def stop(self) -> None:
        self.catalog.stop()

    def _stack_up(self) -> None:
        wanted = [service for kind in self.kinds if (service := KINDS[kind].service)]
        local_stack.up(self.home, ["kafka", "spark", *wanted], lambda _: None)

    def _keeper_answers(self) -> bool:
        known = self.connections.get("clickhouse", ClickHouseConnection)
        impatient = known.model_copy(update={"statement_timeout_seconds": 10})
        try:
            ClickHouseServer("probe", impatient, known.endpoints[0]).rows("SELECT count() FROM batchmerge_state")
        except BatchmergeError as problem:
            return "UNKNOWN_TABLE" in str(problem)
        return True


def _state(home: Path, name: str) -> str:
    return next(s.state for s in local_stack.status(home) if s.name == name)


class Daemon:
    """Dagster's daemon on a project: it starts a run at every minute."""

    def __init__(self, project: Project) -> None:
        self._project, self.process = project, None  # type: tuple[Project, subprocess.Popen[bytes] | None]

    def start(self) -> None:
        log = self._project.folder / "daemon.log"
        command = [str(Path(sys.executable).with_name("dagster-daemon")), "run", "-m", "orchestration.definitions"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                env=self._project.environment,
                cwd=ROOT,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self) -> None:
        """With its code server, which is in its process group."""
        assert self.process
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

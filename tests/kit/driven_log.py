"""A pipeline whose log grows from kill to kill, worked on by driver processes: they take no turns, so two may work."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from resources.connections import Connections
from tests.kit import model
from tests.kit.flow import Flow
from tests.kit.kinds import KINDS
from tests.kit.processes import end_of
from tests.kit.records import Record, bootstrap, produce, random_changes


@dataclass
class DrivenLog:
    """A flow, and all records so far.

    Attributes:
        home: the data folder of the services.
        bad: the part of malformed records. Without any, BigQuery takes the landed files as they are.
        partitions: of the topic, that get records.
    """

    flow: Flow
    connections: Connections
    home: Path
    bad: float = 0.02
    partitions: int = 2
    records: list[Record] = field(default_factory=list)

    def grow(self, count: int = 100) -> None:
        more = random_changes(len(self.records), count, 30, self.partitions, self.bad)
        produce(bootstrap(self.connections), self.flow.topic, more)
        self.records += more

    def start(self, point: str) -> subprocess.Popen[str]:
        """A run that stops itself at this boundary."""
        return self.flow.start(self.home, failpoint=f"{point}=stop")

    def kill(self, point: str) -> None:
        code, output = self.flow.run(self.home, failpoint=point)
        assert code == -signal.SIGKILL, output

    def two_at_once(self) -> None:
        """One of them may be interrupted, or refused for good; what is left, the next run does."""
        for run in [self.flow.start(self.home), self.flow.start(self.home)]:
            code, output = end_of(run)
            assert code in (0, 2, 3), output

    def run(self) -> str:
        """Runs to the end; what it printed."""
        code, output = self.flow.run(self.home)
        assert code == 0, output
        return output

    def check(self, why: object = "") -> None:
        for mode in self.flow.modes:
            found = KINDS[self.flow.kind].rows(self.connections, self.flow.table(mode))
            rows = model.sorted_rows((row["id"], row["name"], row["amount"]) for row in found)
            assert rows == model.expected(self.records, mode), (mode, why)

    def finish(self, why: object = "") -> None:
        """Runs once more, and checks every table."""
        self.run()
        self.check(why)

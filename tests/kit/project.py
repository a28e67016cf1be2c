"""A project of its own: pipeline files, a connections file and a Dagster instance, worked on by the real command."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.failpoints import VARIABLE
from tests.kit import specs
from tests.kit.flow import ROOT


@dataclass(frozen=True)
class Project:
    """What a user of Batchmerge has on a machine.

    Attributes:
        folder: for pipeline files, and for Dagster's data.
        home: the data folder of the services.
        connections: the connections file.
    """

    folder: Path
    home: Path
    connections: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every process that works on the project."""
        return {
            **{name: value for name, value in os.environ.items() if name != VARIABLE},
            "BATCHMERGE_HOME": str(self.home),
            "BATCHMERGE_CONNECTIONS": str(self.connections),
            "BATCHMERGE_PIPELINES": str(self.folder / "pipelines"),
            "DAGSTER_HOME": str(self.folder / "dagster"),
        }

    def write(self, pipeline: str, document: Mapping[str, object]) -> None:
        """Writes a pipeline file, a new one or in place of the earlier one."""
        specs.write(self.folder / "pipelines", pipeline, document)

    def remove(self, pipeline: str) -> None:
        """Removes the pipeline file."""
        shutil.rmtree(self.folder / "pipelines" / pipeline)

    def start(self, *arguments: str, failpoint: str | None = None) -> subprocess.Popen[str]:
        """Starts `batchmerge` with these arguments, in a process group of its own."""
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("batchmerge")), *arguments],
            env={**self.environment, **({VARIABLE: failpoint} if failpoint else {})},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def call(self, *arguments: str, failpoint: str | None = None) -> tuple[int, str]:
        """Runs `batchmerge`; exit code (negative: the signal) and output."""
        process = self.start(*arguments, failpoint=failpoint)
        assert process.stdout
        output = process.stdout.read()
        return process.wait(timeout=600), output

    def kill(self, point: str, turn: int, *arguments: str) -> None:
        """Runs `batchmerge` with these arguments, and kills it when it reaches this boundary for the n-th time."""
        code, output = self.call(*arguments, failpoint=f"{point}:{turn}")
        assert code == -signal.SIGKILL, f"{point} was not reached a {turn}. time: exit {code}\n{output}"

"""A warm process that dies, or that cannot fork now. Its part is played by a few lines."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.origin import RepositoryPythonOrigin

from orchestration.warm import client, server
from tests.kit.waiting import until

_PLAYED = """
import socket, sys
control = socket.socket(fileno=int(sys.argv[1]))
control.sendall(b'{"ready": 1}\\n')
for line in control.makefile():
    if line == "{}\\n":
        break
    control.sendall(b'{"problem": "no memory"}\\n' if "short" in line else b'{"pid": 7}\\n')
"""


class Warm:
    """Asks for runs as the launcher does."""

    def __init__(self, instance: dg.DagsterInstance, log: Path) -> None:
        self.instance, self._log = instance, log
        self.origin = RepositoryPythonOrigin(sys.executable, ModuleCodePointer("m", "f", os.getcwd()))
        self.processes = client.WarmProcesses()

    def run(self, run_id: str) -> int | None:
        return self.processes.start_run(self.instance, self.origin, "server", run_id)

    @property
    def now(self) -> client.WarmProcess:
        ((_, process),) = self.processes._known.values()
        return process

    def is_up(self) -> None:
        assert self.run("first") is None
        assert self.now._process.poll() is None
        until(lambda: self.now.is_ready, self._log)


@pytest.fixture
def warm(instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warm]:
    monkeypatch.setattr(client, "_SERVER", _PLAYED)
    (tmp_path / "log").touch()
    made = Warm(instance, tmp_path / "log")
    yield made
    made.now.retire()


def test_one_that_died_is_replaced(warm: Warm, caplog: pytest.LogCaptureFixture) -> None:
    warm.is_up()
    died = warm.now
    died._process.kill()
    died._process.wait()
    with caplog.at_level(logging.WARNING, "batchmerge"):
        warm.is_up()
    assert warm.run("second") == 7
    assert warm.now is not died
    assert "the warm process has ended with -9" in caplog.text


def test_one_that_cannot_fork_now_is_asked_again_for_the_next_run(warm: Warm, caplog: pytest.LogCaptureFixture) -> None:
    warm.is_up()
    assert warm.run("short") is None
    assert "no memory" in caplog.text
    assert warm.run("second") == 7


def test_where_it_cannot_fork_it_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", full)
    ours, theirs = socket.socketpair()
    serving = threading.Thread(target=lambda: server._serve(theirs, server._ForkedRuns(), ""))
    with ours, theirs:
        serving.start()
        ours.sendall(b'{"run": "one"}\n')
        ours.settimeout(20)
        assert "temporarily unavailable" in json.loads(ours.makefile().readline())["problem"]
        ours.sendall(b"{}\n")
        serving.join()


def test_a_retired_process_gets_no_more_runs(warm: Warm) -> None:
    warm.is_up()
    retired = warm.now
    assert warm.processes.start_run(warm.instance, warm.origin, "server after a reload", "second") is None
    assert warm.now is not retired
    assert warm.processes._retired == [retired]


@pytest.mark.parametrize("daemon_ends", [False, True])
def test_the_runs_of_a_retired_one_go_on_until_they_or_the_daemon_end(daemon_ends: bool) -> None:
    ours, theirs = socket.socketpair()
    runs = server._ForkedRuns()
    with ours, theirs, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as run:
        assert run.stdin
        runs.add(run.pid)
        serving = threading.Thread(target=lambda: server._serve(theirs, runs, ""))
        serving.start()
        ours.sendall(b"{}\n")
        if daemon_ends:
            ours.close()
            serving.join()
            assert runs.reap()
            runs.end()
        else:
            run.stdin.close()
            serving.join()
        assert not runs.reap()

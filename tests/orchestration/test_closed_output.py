"""A command whose output nobody reads any more (`… | head -1`) does all that it was to do, and keeps its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from resources.local import processes
from resources.local.processes import Running
from resources.local.service import Command
from resources.local.stack_state import StackState
from tests.kit.command import BATCHMERGE
from tests.kit.flow import ROOT

_SLEEPER = Command([sys.executable, "-c", "import time; time.sleep(600)"])


@contextmanager
def _pipe_without_reader() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


def _call(*arguments: str, streams: tuple[str, ...] = ("stdout",), **variables: str) -> int:
    """The exit code of `batchmerge …` with these streams closed at the other end."""
    with _pipe_without_reader() as closed:
        done = subprocess.run(
            [BATCHMERGE, *arguments],
            check=False,
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=closed if "stdout" in streams else subprocess.DEVNULL,
            stderr=closed if "stderr" in streams else subprocess.DEVNULL,
        )
    return done.returncode


@pytest.fixture
def services(tmp_path: Path) -> Iterator[dict[str, Running]]:
    """Processes that a data folder has as its services."""
    started = {name: processes.start(_SLEEPER, tmp_path / "log", tmp_path) for name in ("spark", "kafka")}
    StackState(processes=started).write(tmp_path)
    yield started
    for running in started.values():
        processes.stop(running)


@pytest.mark.parametrize("streams", [("stdout",), ("stdout", "stderr")])
def test_the_exit_code_says_what_was_found(streams: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "defs.yaml").write_text("type: batchmerge.KafkaPipeline\nattributes: {nonsense: 1}\n")
    assert _call("check", "--files-only", streams=streams, BATCHMERGE_PIPELINES=str(tmp_path)) == 2


def test_all_services_are_stopped(services: dict[str, Running], tmp_path: Path) -> None:
    assert _call("down", BATCHMERGE_HOME=str(tmp_path)) == 0
    assert [name for name, running in services.items() if processes.is_alive(running)] == []
    assert StackState.read(tmp_path).processes == {}


def test_watching_ends(tmp_path: Path) -> None:
    assert _call("status", "--watch", BATCHMERGE_HOME=str(tmp_path), BATCHMERGE_PIPELINES=str(tmp_path)) in (0, 2)

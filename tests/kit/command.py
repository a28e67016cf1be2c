"""The command `batchmerge`: in this process, on the pipeline file of an engine under test, or in one of its own."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from orchestration import compute_logs, files
from orchestration.cli import main
from tests.kit import specs
from tests.kit.empty_instance import make_empty_instance
from tests.kit.engine import Engine
from tests.kit.flow import ROOT
from tests.kit.processes import lives

BATCHMERGE = Path(sys.executable).with_name("batchmerge")

# Exit code and what was printed; an empty argument stands for the pipeline's name.
Command = Callable[..., tuple[int, str]]


Call = Callable[..., tuple[int, str, str]]


def call_in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `batchmerge …` in this process; exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["batchmerge", *arguments])
        return _exit_code(), *capsys.readouterr()

    return run


def command(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `batchmerge` with the pipeline files in `folder` and a Dagster instance of its own."""
    monkeypatch.setattr(files, "FOLDER", folder)
    monkeypatch.setenv("BATCHMERGE_HOME", str(home))
    make_empty_instance(folder / "dagster")
    monkeypatch.setenv("DAGSTER_HOME", str(folder / "dagster"))

    def run(engine: Engine, *arguments: str) -> tuple[int, str]:
        specs.write(folder, engine.flow.name, engine.document)
        monkeypatch.setattr(sys, "argv", ["batchmerge", *(a or engine.flow.name for a in arguments)])
        capsys.readouterr()
        code = _exit_code()
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def _exit_code() -> int:
    """The exit code of the command in `sys.argv`."""
    with _as_it_was():
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
            assert isinstance(code, int)
            return code
        return 0


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Takes back what a command changes in its process, which is the one of all tests here.

    Dagster's databases stay open (`keep_databases_open`).
    """
    loggers = [logging.getLogger(name) for name in ("batchmerge", "batchmerge.metrics", "dagster")]
    logs = [(logger, logger.level, [*logger.handlers]) for logger in loggers]
    signals = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    variables, threshold, in_terminal = _variables(), gc.get_threshold(), compute_logs._in_terminal
    try:
        yield
    finally:
        for logger, level, handlers in logs:
            logger.setLevel(level)
            logger.handlers[:] = handlers
        for number, handler in signals:
            signal.signal(number, handler)
        for name in _variables().keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
        gc.set_threshold(*threshold)
        compute_logs._in_terminal = in_terminal


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("BATCHMERGE_", "DAGSTER_"))}


@contextmanager
def in_background(arguments: str, log: Path) -> Iterator[psutil.Process]:
    """`batchmerge …` as a shell's background job: there INT is ignored."""
    job = f"{BATCHMERGE} {arguments} > {log} 2>&1 & echo $!"
    started = subprocess.run(["sh", "-c", job], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    process = psutil.Process(int(started.stdout))
    try:
        yield process
    finally:
        if lives(process):
            for one in [*process.children(recursive=True), process]:
                one.kill()

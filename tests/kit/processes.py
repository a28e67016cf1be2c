"""Processes that a test has started: how they sleep, and how they end."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from resources.local.ports import accepts
from resources.local.processes import Running, is_alive
from tests.kit.waiting import PATIENCE, until


def stop(process: subprocess.Popen[bytes], patience: float = 60) -> None:
    """Asks the process to end, and kills it if it is still alive after these seconds."""
    process.terminate()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until_listens(service: Running, ports: Collection[int], log: Path) -> None:
    """Waits until it accepts connections on all these ports; fails if it has ended."""

    def listens() -> bool:
        assert is_alive(service), log.read_text()[-5000:]
        return all(map(accepts, ports))

    until(listens, log, "listener")


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


def started_by(process: psutil.Process, name: str) -> list[psutil.Process]:
    """The processes with this text in their command line that have not ended."""
    return [one for one in process.children(recursive=True) if name in " ".join(command_of(one))]


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # or it is one that has ended
        return []


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Waits for the process; exit code (negative: the signal) and output."""
    assert process.stdout
    output = process.stdout.read()
    return process.wait(timeout=PATIENCE), output


def until_stopped(process: subprocess.Popen[str]) -> None:
    """Waits until the process stops itself at a boundary (`failpoint="…=stop"`)."""

    def is_stopped() -> bool:
        assert process.poll() is None, "ended before the boundary"
        return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED

    until(is_stopped)


@contextmanager
def asleep(process: subprocess.Popen[str]) -> Iterator[None]:
    """Within it the process sleeps at a boundary (`failpoint="…=stop"`); afterwards it goes on."""
    try:
        until_stopped(process)
        yield
    finally:
        process.send_signal(signal.SIGCONT)

"""Processes that outlive the command that started them, and are never mistaken for others.

A pid alone says little: the operating system gives it to somebody else once the process is gone, and the start time
that it reports moves with the wall clock. So each process carries a mark of its own in its environment, and only a
process that has pid and mark is alive, or stopped, as ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from resources.local.service import Command

MARK = "BATCHMERGE_SERVICE"
# Looks at a process that shows no environment yet: 10 s in all.
_LOOKS = 1000
# Seconds between two looks whether a process has ended.
_LOOK_EVERY = 0.02
# psutil raises the second one if a process has ended and another one has got its pid since.
_GONE = (psutil.NoSuchProcess, FileNotFoundError)
_EXEC_STOPPABLE = (
    "import os, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)
# Settings of another Spark or Java that a person works with must not leak into the services.
_FOREIGN = ("SPARK_", "KAFKA_", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "PYTHONPATH")


class Running(BaseModel):
    """A process that we started."""

    model_config = ConfigDict(frozen=True)
    pid: int
    mark: str


def start(command: Command, log: Path, cwd: Path) -> Running:
    """Starts the command in a session of its own, its output appended to `log`."""
    mark = str(uuid.uuid4())
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        started = subprocess.Popen(
            _stoppable(command.argv),
            cwd=cwd,
            env={**inherited(os.environ), **command.env, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # Nobody waits for it here: `down` may be another process. Without this Python warns when the object is collected.
    started.returncode = 0
    return Running(pid=started.pid, mark=mark)


def take_mark() -> Running:
    """Marks this very process, from the program on that it is about to become (exec)."""
    os.environ[MARK] = str(uuid.uuid4())
    return Running(pid=os.getpid(), mark=os.environ[MARK])


def _stoppable(argv: Sequence[str]) -> list[str]:
    """The command, so that TERM ends it.

    In a script's background job SIGINT is ignored, Dagster then makes SIGTERM the same (`setup_interrupt_handlers`),
    and what is started inherits it. `preexec_fn` would be shorter, but runs the fork hooks of gRPC.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _EXEC_STOPPABLE, *argv]


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables of other Sparks or Javas, which PySpark in this process sets too."""
    return {name: value for name, value in environment.items() if not name.startswith(_FOREIGN)}


def find(running: Running) -> psutil.Process | None:
    """The process itself, or None where it is gone or its pid now belongs to another one."""
    try:
        process = psutil.Process(running.pid)
        for _ in range(_LOOKS):
            if _has_ended(process):
                _reap(running.pid)
                return None
            # Between its exec and its first instruction, and while its threads end, a process shows no environment.
            if process.status() != psutil.STATUS_ZOMBIE and (environment := process.environ()):
                return process if environment.get(MARK) == running.mark else None
            time.sleep(0.01)
        return None
    except (psutil.AccessDenied, *_GONE):
        # A process whose environment we may not read is another user's.
        return None


def is_alive(running: Running) -> bool:
    return find(running) is not None


def stop(running: Running, patience: float = 30) -> None:
    """Ends the process: asks first (TERM), and after `patience` seconds kills it with all its children."""
    process = find(running)
    if process is None:
        return
    children = list[psutil.Process]()
    with contextlib.suppress(*_GONE):
        children = process.children(recursive=True)
    end([process], patience)
    end(children, 2)


def end(processes: Sequence[psutil.Process], patience: float) -> None:
    """Ends these processes: TERM, and KILL for those that live after `patience` seconds."""
    for name, seconds in (("terminate", patience), ("kill", 10.0)):
        for process in processes:
            with contextlib.suppress(psutil.AccessDenied, *_GONE):
                getattr(process, name)()
        processes = _living(processes, seconds)


def _living(processes: Sequence[psutil.Process], patience: float) -> Sequence[psutil.Process]:
    """The processes that are still alive after this time; returns early if none is."""
    until = time.monotonic() + patience
    while (processes := [one for one in processes if _lives(one)]) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY)
    return processes


def _lives(process: psutil.Process) -> bool:
    try:
        if process.is_running() and not _has_ended(process):
            return True
    except _GONE:
        return False
    _reap(process.pid)
    return False


def _has_ended(process: psutil.Process) -> bool:
    """Whether only its exit code is left. The main thread of a killed process may end before its other threads, and
    files and ports are free only after the last of them."""
    return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1


def _reap(pid: int) -> None:
    """Reaps a dead child of this very process."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def last_lines(log: Path, start_at: int, count: int = 12) -> str:
    """The last lines that were written to `log` after byte `start_at`."""
    try:
        with log.open("rb") as file:
            file.seek(start_at)
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-count:])

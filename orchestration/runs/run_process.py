"""The operating system's process of a run: how the run's tags name it, whether it has ended, what it left behind."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import psutil

from orchestration.names import LAUNCHER_TAG, PROCESS_TAG
from resources.local.processes import end

if TYPE_CHECKING:
    import dagster as dg

# The variable with the run's id, in the environment of its steps' processes.
RUN_VARIABLE = "BATCHMERGE_RUN"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Seconds that a process has to end, before it is killed.
_PATIENCE = 5

ProcessState = Literal["alive", "ended", "unknown"]


def process_tags(run_id: str, pid: int | None = None, tag: str = PROCESS_TAG) -> dict[str, str]:
    """The tag that names this process, or the one with this id, as the process of the run."""
    process = psutil.Process(pid)
    return {tag: f"{socket.gethostname()} {process.pid} {_started(process)} {run_id}"}


class _Named(NamedTuple):
    """The process that a tag names; `start` as `_started` has it."""

    host: str
    pid: int
    start: str


def _named(run: dg.DagsterRun, tag: str = PROCESS_TAG) -> _Named | None:
    """None also if it is another run's: Dagster copies the tags of a run to the run that retries it."""
    host, pid, start, run_id = [*run.tags.get(tag, "").split(" "), "", "", ""][:4]
    return _Named(host, int(pid), start) if run_id == run.run_id else None


def process_state(run: dg.DagsterRun) -> ProcessState:
    """The state of the run's process; unknown if no tag names it yet, or it is on another machine."""
    return _state_of(_named(run))


def will_not_begin(run: dg.DagsterRun) -> bool:
    """Whether a run that has not begun has no process yet, and the one that was to start it has ended."""
    return _named(run) is None and _state_of(_named(run, LAUNCHER_TAG)) == "ended"


def _state_of(named: _Named | None) -> ProcessState:
    if named is None or named.host != socket.gethostname():
        return "unknown"
    try:
        process = psutil.Process(named.pid)
        if process.status() == psutil.STATUS_ZOMBIE or _started(process) != named.start:
            return "ended"
    except psutil.NoSuchProcess:
        return "ended"
    except psutil.AccessDenied:
        return "unknown"
    return "alive"


def interrupt(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Asks the process of a run to end, if it is known to be alive. Returns whether it was."""
    pid = pid_of(run)
    if pid is None or process_state(run) != "alive":
        return False
    instance.report_run_canceling(run)
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(pid, signal.SIGINT)
    return True


def where(run: dg.DagsterRun) -> str:
    """The process for people: ``process 4711`` or ``process 4711 on host-b``; empty where nothing names it."""
    named = _named(run) or _named(run, LAUNCHER_TAG)
    if named is None:
        return ""
    return f"process {named.pid}" + ("" if named.host == socket.gethostname() else f" on {named.host}")


def pid_of(run: dg.DagsterRun) -> int | None:
    """The process id of a run on this machine; None: no tag names it."""
    named = _named(run)
    return named.pid if named and named.host == socket.gethostname() else None


def kill(run: dg.DagsterRun) -> None:
    """Ends the run's process, if it is on this machine and lives."""
    pid = pid_of(run)
    if pid and process_state(run) == "alive":
        end([psutil.Process(pid)], _PATIENCE)


def end_leftovers(run: dg.DagsterRun) -> int:
    """Ends steps of a dead run that live on in processes of their own. Returns how many there were.

    The processes are found by their environment; those of a forked run, which does not show one, by their session.
    """
    session = _session_begun_by(run)
    left = [p for p in psutil.process_iter() if _run_of(p) == run.run_id or (session and _session_of(p) == session)]
    end(left, _PATIENCE)
    return len(left)


def _started(process: psutil.Process) -> str:
    """What distinguishes the process from a later one with the same id.

    Ticks since the machine's start and the id of that start; the wall clock may be set while a process lives. Other
    systems than Linux have seconds of the wall clock.
    """
    if _BOOT_ID.exists():
        stat = Path(f"/proc/{process.pid}/stat")
        try:
            return f"{stat.read_text().rpartition(')')[2].split()[19]}@{_boot()}"
        except (FileNotFoundError, ProcessLookupError):
            raise psutil.NoSuchProcess(process.pid) from None
    return f"{process.create_time():.0f}"


@cache
def _boot() -> str:
    return _BOOT_ID.read_text().strip()[:8]


def _session_begun_by(run: dg.DagsterRun) -> int | None:
    """The id of the session that the run's process began; None: the id may belong to another session by now.

    No new process gets the id while one of the session lives. So if another process has the id, no process of the
    session is left.
    """
    named = _named(run)
    if pid_of(run) is None or named is None or (_BOOT_ID.exists() and not named.start.endswith(f"@{_boot()}")):
        return None
    try:
        return named.pid if _started(psutil.Process(named.pid)) == named.start else None
    except psutil.NoSuchProcess:
        return named.pid


def _session_of(process: psutil.Process) -> int | None:
    """The process's session; None for the leader of a session, and for our own session: they are no leftovers."""
    try:
        found = os.getsid(process.pid)
    except OSError:
        return None
    return found if found not in (process.pid, os.getsid(0)) else None


def _run_of(process: psutil.Process) -> str | None:
    if process.pid == os.getpid():
        return None
    try:
        return process.environ().get(RUN_VARIABLE)
    except (psutil.Error, OSError):
        return None
